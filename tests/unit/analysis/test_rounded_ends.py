"""Ends of device work that rounding puts after the begin of what waited for them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rankscope.analysis.rank.view import make_view
from rankscope.trace.files.load import load_traces


def _ends(folder: Path, call: tuple[float, float], kernel: tuple[float, float]) -> list[int]:
    """Begin of the kernel minus the end of the call, in ns, as analysed; start and duration are given in us."""
    events = []
    for number, (stream, (start, duration)) in enumerate(((20, call), (7, kernel)), start=1):
        events += [
            {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 1, "tid": 1, "ts": float(number),
             "dur": 0.5, "args": {"correlation": number}},
            {"ph": "X", "cat": "kernel", "name": f"kernel_{number}", "pid": 0, "tid": stream, "ts": start,
             "dur": duration, "args": {"correlation": number, "stream": stream, "device": 0}},
        ]  # fmt: skip
    (folder / "rank_0.json").write_text(json.dumps({"traceEvents": events, "distributedInfo": {"rank": 0}}))
    (trace,) = load_traces([folder], workers=1, cache=False).traces
    events_ = make_view(trace, 0).trace.events
    work = events_.stream >= 0
    return [int(events_.start[work][1] - events_.end[work][0])]


@pytest.mark.parametrize(
    ("call", "kernel", "apart"),
    [
        # 100.0004 + 50.0004 and 150.0008, each rounded to ns: 150.002 and 150.001
        pytest.param((100.001, 50.001), (150.001, 30.007), 0, id="a nanosecond, of rounding"),
        pytest.param((100.001, 50.021), (150.001, 30.007), -21, id="21 ns of a trace with ns are an overlap"),
        pytest.param((100.0, 51.0), (150.0, 30.0), 0, id="a microsecond, of rounding to whole ones"),
        pytest.param((100.0, 53.0), (150.0, 30.0), -3000, id="three microseconds are an overlap"),
        pytest.param((100.001, 50.001), (151.003, 30.007), 1001, id="a kernel that began later"),
    ],
)
def test_an_end_is_moved_to_the_begin_of_what_started_within_its_error(call, kernel, apart, tmp_path) -> None:
    assert _ends(tmp_path, call, kernel) == [apart]
