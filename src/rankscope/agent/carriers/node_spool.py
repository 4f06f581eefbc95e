"""Carrier of a job on one node, which does nothing: all ranks read the notices in the node's spool."""

from __future__ import annotations

from rankscope.agent.carriers.base import Carrier

__all__ = ["CARRIER"]

CARRIER = Carrier(
    name="node_spool",
    phrase="by files in the node's own folder",
    heard_within_s=0.25,
    possible=lambda _post: False,
    start=lambda _post: None,
)
"""Never carries between nodes; the table selects it for jobs on one node."""
