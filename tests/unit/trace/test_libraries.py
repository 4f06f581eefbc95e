"""Every library's samples are communication, of the kind they say, and no sample is another row's by accident."""

from __future__ import annotations

import re

import pytest

from rankscope.trace.columns import Category
from rankscope.trace.kineto.collectives import _kind_of_name
from rankscope.trace.libraries import LIBRARIES, Library
from rankscope.trace.names import Kind, classify, is_communication

SAMPLES = [(row, name, kind) for row in LIBRARIES for name, kind in row.samples]


@pytest.mark.parametrize(("row", "name", "kind"), SAMPLES, ids=lambda x: getattr(x, "name", None) or str(x)[:40])
def test_a_sample_is_communication_of_its_kind(row: Library, name: str, kind: str) -> None:
    assert is_communication(name)
    assert _kind_of_name(name) == kind
    operator = bool(row.prefix) and name.startswith(f"{row.prefix}:")
    assert classify(name, Category.CPU_OP if operator else Category.KERNEL) is Kind.COMMUNICATION
    by_kernel = (r for r in LIBRARIES if r.kernels and re.search(r.kernels, name, re.I))
    assert row.prefix in name.partition(":")[0] if operator else next(by_kernel) is row
