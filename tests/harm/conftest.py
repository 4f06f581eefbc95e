"""What tests of the node helper share."""

from __future__ import annotations

import pytest

from rankscope.rundir.layout import RunDir
from support.node import Node


@pytest.fixture
def make(tmp_path):
    """Nodes of one run; their helpers are ended with the test."""
    nodes = []

    def make(name="spool", **task) -> Node:
        node = Node(tmp_path / name, RunDir(tmp_path / "RUN"), **task)
        nodes.append(node)
        return node

    yield make
    for node in nodes:
        node.close()
