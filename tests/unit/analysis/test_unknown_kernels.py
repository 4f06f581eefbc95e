"""Kernels that may communicate under an unknown name are reported, and no others."""

from __future__ import annotations

import pytest

from rankscope.analysis.rank.view import make_view
from rankscope.analysis.tables.unknown_kernels import unknown_kernels

STREAMS = {"gemm": 7, "void new_library::exchange<4>(int)": 13, "ncclDevKernel_AllReduce": 20}


def notes(make_trace, rows, streams=STREAMS) -> list[str]:
    views = []
    for rank in (0, 1):
        trace = make_trace(rank, rows, ranks=(0, 1), steps=[(0, 1000)])
        gpu = trace.events.stream >= 0
        trace.events.stream[gpu] = [streams[trace.strings[c]] for c in trace.events.name[gpu]]
        views.append(make_view(trace, rank))
    return unknown_kernels(views)


ROWS = [("gemm", 100, 300), ("void new_library::exchange<4>(int)", 200, 100), ("ncclDevKernel_AllReduce", 500, 100)]


def test_an_unknown_kernel_with_a_stream_to_itself_is_reported(make_trace) -> None:
    (note,) = notes(make_trace, ROWS)
    assert "new_library::exchange" in note
    assert "10.0 % of the window of rank" in note


@pytest.mark.parametrize(
    ("rows", "streams"),
    [
        (ROWS, STREAMS | {"void new_library::exchange<4>(int)": 7}),  # among compute
        ([ROWS[0], ("void new_library::exchange<4>(int)", 200, 9), ROWS[2]], STREAMS),  # less than 1 %
        (ROWS[1:], STREAMS),  # no compute to tell it from
        ([ROWS[0], ("layer_norm_kernel", 200, 100)], STREAMS | {"layer_norm_kernel": 13}),  # known to compute
        ([ROWS[0], ("triton_poi_fused_add_0", 200, 100)], STREAMS | {"triton_poi_fused_add_0": 13}),
    ],
)
def test_what_is_known_or_shares_a_stream_is_not(make_trace, rows, streams) -> None:
    assert notes(make_trace, rows, streams) == []
