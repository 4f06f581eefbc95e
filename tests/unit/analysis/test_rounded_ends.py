"""Ends of device work that rounding puts behind the begin of the next piece."""

from __future__ import annotations

import json

import pytest

from rankscope.analysis.rank.view import make_view
from rankscope.trace.files.load import load_traces


def ends_ns(tmp_path, *kernels: tuple[float, float, int]) -> list[int]:
    """Return the ends of kernels that were written with their begin and duration in us, and stream."""
    events = [
        {"ph": "X", "cat": "kernel", "name": f"k{i}", "pid": 0, "tid": stream, "ts": begin, "dur": length,
         "args": {"stream": stream, "device": 0, "correlation": i + 1}}
        for i, (begin, length, stream) in enumerate(kernels)
    ]  # fmt: skip
    trace = {"distributedInfo": {"rank": 0, "world_size": 1, "backend": "nccl"}, "traceEvents": events}
    (tmp_path / "rank_0.json").write_text(json.dumps(trace))
    view = make_view(load_traces([tmp_path], cache=False).traces[0], 0)
    found = view.trace.events
    return [int(end - found.start[0]) for end in found.end[found.stream >= 0]]


@pytest.mark.parametrize(
    ("kernels", "expected"),
    [
        ([(100, 10, 7), (109, 5, 20)], [9_000, 14_000]),  # whole us: rounded
        ([(100, 10, 7), (108, 5, 20)], [10_000, 13_000]),  # 2 us are more than rounding does
        ([(100.0, 10.2, 7), (110.0, 5.1, 20)], [10_000, 15_100]),  # tenths: 2 of them may be rounding
        ([(100.0, 10.3, 7), (110.0, 5.1, 20)], [10_300, 15_100]),  # 3 may not
        ([(100.001, 9.999, 7), (109.998, 5.0, 20)], [9_997, 14_997]),  # ns: 2, and 2 of the conversion
        ([(100.001, 9.999, 7), (109.9, 5.0, 20)], [9_999, 14_899]),
    ],
)
def test_an_end_within_its_error_of_the_next_begin_is_that_begin(tmp_path, kernels, expected) -> None:
    assert ends_ns(tmp_path, *kernels) == expected
