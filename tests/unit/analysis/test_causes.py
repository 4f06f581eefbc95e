"""Extra work of a late rank: work of a compiler or a data loader counts as theirs."""

from __future__ import annotations

import json

import numpy as np
import pytest

from rankscope.analysis.rank.view import make_view
from rankscope.analysis.stragglers.profile import profile, work_difference
from rankscope.trace.files.load import load_traces

MS = 1_000_000  # ns


def rank_of(tmp_path, rank: int, *more: tuple[str, str, float, float]):
    """A step of 100 ms with one operator from 50 to 60 ms, and ``more``: (name, category, begin, length) in ms."""
    events = [
        ("ProfilerStep#1", "user_annotation", 0, 100),
        ("aten::mm", "cpu_op", 50, 10),
        *more,
    ]
    trace = {
        "distributedInfo": {"rank": rank, "world_size": 2, "backend": "gloo"},
        "traceEvents": [
            {"ph": "X", "pid": 7 + rank, "tid": 1, "name": n, "cat": c, "ts": 1e3 * t, "dur": 1e3 * d}
            for n, c, t, d in events
        ],
    }
    path = tmp_path / f"rank_{rank}.json"
    path.write_text(json.dumps(trace))
    (loaded,) = load_traces([path], cache=False).traces
    view = make_view(loaded, rank)
    return view, profile(view, np.array([view.start + 90 * MS]), 0, 2)


@pytest.mark.parametrize(
    ("around", "category", "found"),
    [
        ("entire_frame_compile", "cpu_op", {}),
        ("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", "user_annotation", {}),
        ("my own code", "user_annotation", {"extra_compute": 30 * MS}),
    ],
)
def test_work_inside_of_what_has_a_name_is_no_other_cause(tmp_path, around, category, found):
    # GIVEN three operators of 10 ms that only rank 1 runs, from 2 to 44 ms, inside of something
    extra = [("aten::add", "cpu_op", t, 10) for t in (2, 18, 34)]
    late, own = rank_of(tmp_path, 1, (around, category, 1, 44), *extra)
    peer, other = rank_of(tmp_path, 0)
    assert work_difference(late, peer, own, other, np.array([0])) == found
