"""Operators that one rank without a device runs beyond its peer; what they cost is calculated by hand."""

from __future__ import annotations

import json

import pytest

from rankscope.analysis.pipeline import analyze
from rankscope.trace.files.load import load_traces

STEPS, PERIOD = 6, 100_000
"""Steps, and their length, us."""


def rank(folder, number: int, products: int, each_us: int) -> None:
    """A step of this many products, then a reduction that ends on both ranks 60 ms after the begin of the step.

    In every second step each product takes 20 us longer, on both ranks.
    """
    found = []
    for step in range(STEPS):
        at, each = step * PERIOD, each_us + 20 * (step % 2)
        done = products * each
        found += [
            ("ProfilerStep#" + str(step), "user_annotation", 1, at, PERIOD),
            *(("aten::mm", "cpu_op", 1, at + n * each, each - 1) for n in range(products)),
            ("c10d::allreduce_", "cpu_op", 1, at + done + 5, 10),
            ("gloo:all_reduce", "user_annotation", 2, at + done + 20, 60_000 - done - 20),
            ("aten::add_", "cpu_op", 1, at + 60_010, 39_000),
        ]
    trace = {
        "distributedInfo": {"rank": number, "world_size": 2, "backend": "gloo"},
        "traceEvents": [
            {"ph": "X", "pid": 7, "name": name, "cat": cat, "tid": tid, "ts": ts, "dur": dur}
            for name, cat, tid, ts, dur in found
        ],
    }
    (folder / f"rank_{number}.json").write_text(json.dumps(trace))


def verdict_of(folder, *ranks: tuple[int, int]):
    for number, (products, each) in enumerate(ranks):
        rank(folder, number, products, each)
    return analyze(load_traces([folder], cache=False), hta=False).verdict


def test_a_fifth_more_products_are_named_with_what_they_cost(tmp_path) -> None:
    """48 products of 1 ms and 40: the segment takes 1.2 times as long, less than segments of hosts scatter."""
    found = verdict_of(tmp_path, (40, 1000), (48, 1000))
    assert (found.kind, found.ranks, found.cause) == ("straggler", [1], "extra_compute")
    assert found.cost_ms_per_step == pytest.approx(8.0, rel=0.05)


def test_as_many_products_that_take_a_fifth_longer_name_nobody(tmp_path) -> None:
    assert verdict_of(tmp_path, (40, 1000), (40, 1200)).ranks == []


def test_one_product_more_is_not_why_all_take_longer(tmp_path) -> None:
    """41 products of 1.2 ms against 40 of 1 ms: 9.2 ms longer, of which the one more is 1.2."""
    assert verdict_of(tmp_path, (40, 1000), (41, 1200)).ranks == []
