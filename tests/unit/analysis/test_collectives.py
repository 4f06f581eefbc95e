from __future__ import annotations

import numpy as np
import pytest

from rankscope.analysis.clocks.alignment import align, matched_times
from rankscope.analysis.clocks.waits import bus_bytes, element_bytes, lateness, measure_waits
from rankscope.analysis.matching.collectives import canonical, match
from rankscope.analysis.rank.view import make_view
from rankscope.analysis.windows.analyse import analyse_window
from rankscope.trace.files.load import load_traces
from support.archives import unpack

from .conftest import DATA


def _waits(traces):
    views = [make_view(t, t.rank) for t in traces]
    matched = match(views)
    clocks = align(views, matched)
    return matched, clocks, measure_waits(views, matched, clocks)


@pytest.mark.parametrize(
    ("said", "plain"),
    [
        ("allreduce", "all_reduce"),
        ("_allgather_base", "all_gather"),
        ("ncclDevKernel_ReduceScatter_Sum_f32_RING_LL", "reduce_scatter"),
        ("all_to_allv", "all_to_all"),
        ("nccldevkernel_sendrecv", "sendrecv"),
        ("something new", "something new"),
    ],
)
def test_one_spelling_for_each_kind(said, plain) -> None:
    assert canonical(said) == plain


@pytest.mark.data
def test_groups_are_their_ranks_not_their_names(case) -> None:
    traces, expected = case("16")
    matched, _, waits = _waits(traces)
    assert {c.ranks for c in matched.channels} == {(0, 1), (2, 3), (0, 2), (1, 3)}
    waited = np.bincount(matched.column, waits.wait) / 1000
    assert {str(r): waited[r] for r in range(4)} == expected["wait_us_by_waiter"]
    caused = {str(r): waits.wait[waits.last[matched.call] == r].sum() / 1000 for r in range(4)}
    assert {r: us for r, us in caused.items() if us} == expected["wait_us_caused_by"]


@pytest.mark.data
def test_the_late_rank_waits_least(case) -> None:
    traces, expected = case("23")
    matched, _, waits = _waits(traces)
    assert {str(r): waits.wait[matched.of(r)].sum() / 3000 for r in range(4)} == expected["wait_us_per_step"]
    assert waits.last.tolist() == [expected["straggler"]] * 3
    assert np.unique(waits.transfer / 1000).tolist() == [expected["transfer_us"]]


@pytest.mark.data
def test_last_arrivals_of_eight_ranks(tmp_path) -> None:
    unpack(DATA / "param_dlrm_8ranks.tar.gz", tmp_path)
    result = analyse_window(load_traces([tmp_path], workers=1, cache=False).traces)
    assert result.waits.last.tolist() == [7, 7, 7, 7, 7, 5, 5, 4]
    assert result.matched.matched == result.matched.total == 64
    starts = matched_times(result.views, result.matched, end=False).reshape(8, 8)
    spread = (starts.max(axis=1) - starts.min(axis=1)) / 1000
    assert spread.tolist() == [7624, 1101, 168, 125, 223, 534, 584, 885]
    first = result.usage[0]
    assert (first.compute / 1000, first.comm / 1000, first.overlap / 1000) == (1034, 5798, 261)
    assert result.clocks.error_ns < 10_000
    # rank 7 was recorded from 7,514 us on, rank 1 had arrived at 3,102: collective 0 says when recording began
    assert result.waits.early.tolist() == [True] + [False] * 7
    assert "the first collective is left out" in result.notes[0]
    assert "rank 7" in result.notes[0]


def _rows(times, names=None):
    return [("ncclDevKernel_AllReduce", t, 50) for t in times] if names is None else names


def test_by_order_a_window_may_start_one_call_later(make_trace) -> None:
    sizes = [10, 20, 30, 40, 50]
    full = make_trace(0, _rows([100, 200, 300, 400, 500]), ranks=(0, 1), sizes=sizes)
    late = make_trace(1, _rows([200, 300, 400, 500]), ranks=(0, 1), sizes=sizes[1:])
    matched, _, _ = _waits([full, late])
    assert matched.row.reshape(-1, 2).tolist() == [[1, 0], [2, 1], [3, 2], [4, 3]]
    assert matched.unmatched == {"recorded by some ranks only": 1}
    assert matched.methods == ["order"]


def test_by_order_a_window_may_end_one_call_earlier(make_trace) -> None:
    sizes = [10, 20, 30, 40, 50]
    full = make_trace(0, _rows([100, 200, 300, 400, 500]), ranks=(0, 1), sizes=sizes)
    short = make_trace(1, _rows([100, 200, 300, 400]), ranks=(0, 1), sizes=sizes[:4])
    matched, _, _ = _waits([full, short])
    assert matched.row.reshape(-1, 2).tolist() == [[0, 0], [1, 1], [2, 2], [3, 3]]


def test_calls_that_disagree_are_not_matched(make_trace) -> None:
    one = make_trace(0, _rows([100, 200, 300]), ranks=(0, 1), sizes=[1, 2, 3])
    two = make_trace(1, _rows([100, 200, 300]), ranks=(0, 1), sizes=[7, 8, 9])
    matched, clocks, _ = _waits([one, two])
    assert len(matched) == 0
    assert matched.unmatched == {"calls of the group disagree in kind, size or type": 6}
    assert clocks.method == "none"


def test_sequence_numbers_win_over_order(make_trace) -> None:
    one = make_trace(0, _rows([100, 200, 300]), ranks=(0, 1), seq=True)
    two = make_trace(1, _rows([200, 300]), ranks=(0, 1), seq=True)
    two.collectives.seq = np.array([1, 2])
    matched, _, _ = _waits([one, two])
    assert matched.row.reshape(-1, 2).tolist() == [[1, 0], [2, 1]]
    assert matched.methods == ["seq"]


def test_a_group_of_which_one_rank_was_recorded(make_trace) -> None:
    one = make_trace(0, _rows([100]), ranks=(0, 5))
    two = make_trace(1, _rows([100]), ranks=(1, 6))
    matched, _, _ = _waits([one, two])
    assert matched.unmatched == {"no other rank of the group was recorded": 2}


def test_bus_bandwidth_as_nccl_tests_define_it() -> None:
    # 1 GB in 10 ms is 100 GB/s of algorithm bandwidth; all-reduce on 4 ranks: times 2 * 3 / 4
    big, small, ns = np.array([1e9]), np.array([0.25e9]), 1e7
    assert bus_bytes("all_reduce", 4, big, big) / ns == pytest.approx(150.0)
    assert bus_bytes("all_gather", 4, small, big) / ns == pytest.approx(75.0)
    assert bus_bytes("reduce_scatter", 4, big, small) / ns == pytest.approx(75.0)
    assert bus_bytes("send", 2, big, big) is None


def test_lateness_is_after_the_median_of_the_others(make_trace) -> None:
    """Arrivals 100, 130, 170 and 300 us: after the medians of 170, 170, 130 and 130 of the other three."""
    times = {0: 130, 1: 300, 2: 100, 3: 170}
    traces = [make_trace(r, [("ncclDevKernel_AllReduce", t, 400 - t)], ranks=(0, 1, 2, 3)) for r, t in times.items()]
    matched, _, waits = _waits(traces)
    assert (lateness(matched, waits) / 1000).tolist() == [-40.0, 170.0, -70.0, 40.0]
    pair = [make_trace(r, [("ncclDevKernel_AllReduce", times[r], 400 - times[r])], ranks=(0, 1)) for r in (0, 1)]
    matched, _, waits = _waits(pair)
    assert (lateness(matched, waits) / 1000).tolist() == [-170.0, 170.0]


@pytest.mark.parametrize(("dtype", "size"), [("BFloat16", 2), ("Float", 4), ("Long", 8), ("Byte", 1), ("odd", None)])
def test_element_sizes(dtype, size) -> None:
    assert element_bytes(dtype) == size


def test_where_steps_look_alike_the_ends_tell_the_shift(make_trace, skew) -> None:
    """Two sizes in turn: shifts 0, 2 and 4 agree; rank 1 lacks the last 4 calls, and its clock is 37 ms off."""
    times = [1000, 2100, 3350, 4700, 5500, 6900, 7800, 9000, 9900, 11_300]
    sizes = [10, 20] * 5
    full = make_trace(0, _rows(times), ranks=(0, 1), sizes=sizes)
    short = make_trace(1, _rows(times[:6]), ranks=(0, 1), sizes=sizes[:6])
    skew(short, 37_000_000, 0.0)
    matched, clocks, _ = _waits([full, short])
    assert matched.row.reshape(-1, 2).tolist() == [[i, i] for i in range(6)]
    assert matched.extra == [[6, 7, 8, 9], []]
    assert clocks.offset.tolist() == [0.0, -37_000_000.0]


def test_calls_stay_in_their_step_where_both_ranks_recorded_the_same(make_trace) -> None:
    """Ends and steps of a run over gloo: they scatter by 8 ms, and one step apart they agree better by chance."""
    ends = (
        [68_690, 68_691, 134_840, 202_650, 202_760, 260_960, 339_740, 340_050, 409_770],
        [70_810, 70_840, 126_460, 206_650, 206_660, 261_090, 341_400, 341_650, 409_930],
    )
    steps = (
        [(6830, 133_100), (139_980, 134_650), (274_670, 140_500)],
        [(2820, 126_610), (129_460, 136_060), (265_560, 146_480)],
    )
    starts = [[end - 50 for end in of_rank] for of_rank in ends]
    starts[1][2] = 87_120  # the first all-reduce of rank 1 began long before it ended
    rows = [
        [("ncclDevKernel_AllReduce", s, e - s) for s, e in zip(a, b, strict=True)]
        for a, b in zip(starts, ends, strict=True)
    ]
    traces = [make_trace(r, rows[r], ranks=(0, 1), sizes=[10, 20, 30] * 3, steps=steps[r]) for r in range(2)]
    matched, _, _ = _waits(traces)
    assert matched.methods == ["order"]
    assert matched.row.reshape(-1, 2).tolist() == [[i, i] for i in range(9)]
    assert not matched.unmatched
