"""A slow link between two ranks is found and priced; links that differ by design, by size or by chance are not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from rankscope.analysis.links.layout import layout_of
from rankscope.analysis.matching.messages import pair_on_one_clock
from rankscope.analysis.matching.sequences import CallSequence
from rankscope.analysis.rank.view import make_view
from rankscope.analysis.windows.analyse import analyse_window
from rankscope.trace.columns import RankTrace

from .test_worlds import NOISE, period_ms, report_of
from .worlds import US, Item, Mesh, pipeline, simulate

TWO, LONE = Mesh(pp=4, dp=2), Mesh(pp=4)
SLOW = 40.0
"""Times 30 us, and four messages a step pass: 4.7 ms more, if all of them are waited for."""


def placed(traces: list[RankTrace], hosts: list[str] | None, device: str = "NVIDIA H100 80GB HBM3") -> list[RankTrace]:
    for trace in traces:
        trace.meta.device = device
        trace.meta.host = None if hosts is None else hosts[trace.rank]
    return traces


def pairs_of(traces: list[RankTrace]) -> list[list[tuple[int, int]]]:
    window = analyse_window(traces)
    assert window.refused is None
    return [list(group.slow.pairs) for group in window.slow_groups]


def test_the_slow_pair_of_two_pipelines_is_the_verdict_with_its_cost() -> None:
    """Rank 2 (stage 1 of the first pipeline) sends to rank 4; rank 3 sends to rank 5 at the same place of the other."""
    slow = simulate(pipeline(4), TWO, noise=NOISE, links={("p2p", 2): SLOW})
    truth = period_ms(slow) - period_ms(simulate(pipeline(4), TWO, noise=NOISE))
    found = report_of(slow).verdict
    assert (found.kind, found.ranks) == ("comm_bound", [])
    assert "Messages between ranks 2 and 4 take" in found.sentence
    assert found.cost_ms_per_step == pytest.approx(truth, abs=found.cost_error_ms)
    assert found.cost_error_ms < 0.25 * truth


def test_two_slow_pairs_hide_each_other() -> None:
    """The pipelines wait for each other at the end: to mend one of two equally slow links gains nothing."""
    traces = simulate(pipeline(4), TWO, noise=NOISE, links={("p2p", 2): SLOW, ("p2p", 1): SLOW})
    assert sorted(pairs_of(traces)) == [[(1, 3)], [(2, 4)]]


def test_the_adapter_of_one_rank() -> None:
    traces = simulate(pipeline(4), TWO, noise=NOISE, links={("p2p", 0): SLOW, ("p2p", 2): SLOW})
    (group,) = analyse_window(traces).slow_groups
    assert (group.slow.pairs, group.slow.ranks) == (((0, 2), (2, 4)), (0, 2, 4))


@pytest.mark.parametrize(
    ("hosts", "device", "found"),
    [
        (["a"] * 4, "NVIDIA H100 80GB HBM3", [[(1, 2)]]),
        (["a", "b", "c", "d"], "Tesla T4", [[(1, 2)]]),
        (["a", "a", "b", "b"], "NVIDIA H100 80GB HBM3", []),  # the only link between hosts
        (["a"] * 4, "Tesla T4", []),  # two of them may share a switch and others not
        (None, "NVIDIA H100 80GB HBM3", []),  # all ranks call their device 0: nobody knows where it is
    ],
    ids=["one host", "four hosts", "two hosts", "PCIe", "unknown"],
)
def test_links_of_one_pipeline_are_compared_if_they_are_equal_by_design(hosts, device, found) -> None:
    traces = simulate(pipeline(4), LONE, noise=NOISE, links={("p2p", 1): SLOW})
    assert pairs_of(placed(traces, hosts, device)) == found


def test_what_limits_a_lone_pipeline_is_its_slow_link() -> None:
    traces = placed(simulate(pipeline(4), LONE, noise=NOISE, links={("p2p", 1): SLOW}), ["a"] * 4)
    assert "Messages between ranks 1 and 2" in report_of(traces).verdict.sentence


def test_both_pipelines_cross_hosts_at_one_place() -> None:
    hosts = ["a"] * 4 + ["b"] * 4
    traces = simulate(pipeline(4), TWO, noise=NOISE, links={("p2p", 2): SLOW, ("p2p", 3): SLOW})
    assert pairs_of(placed(traces, hosts)) == []


def test_one_of_two_pipelines_crosses_hosts() -> None:
    """Six devices a host: ranks 4 and 6 are apart, ranks 5 and 7 of the other pipeline too, ranks 3 and 5 are not."""
    traces = simulate(pipeline(4), TWO, noise=NOISE, links={("p2p", 4): SLOW, ("p2p", 5): SLOW})
    assert pairs_of(placed(traces, ["a"] * 6 + ["b"] * 2)) == []


def larger(stage: int) -> list[Item]:
    """Messages of one stage are forty times as large, and take as much longer."""
    return [
        replace(item, device=int(SLOW * item.device), elements=int(SLOW * item.elements))
        if item.what == "p2p" and item.stage == stage
        else item
        for item in pipeline(4)
    ]


@pytest.mark.parametrize("mesh", [TWO, LONE], ids=["two", "lone"])
def test_larger_messages_take_longer(mesh) -> None:
    assert pairs_of(placed(simulate(larger(1), mesh, noise=NOISE), ["a"] * mesh.size)) == []


def test_a_few_slow_messages_are_no_slow_link() -> None:
    """One message of four takes long: something else used the link."""
    sends = [number for number, item in enumerate(pipeline(4)) if item.what == "p2p" and item.stage == 1]
    program = pipeline(4)
    program[sends[0]] = replace(program[sends[0]], device=int(100 * SLOW * US))
    assert pairs_of(placed(simulate(program, LONE, noise=NOISE), ["a"] * 4)) == []


def by_stage(elements: Callable[[int], int], us: Callable[[int], int]) -> list[Item]:
    """A pipeline whose stages reduce gradients of different sizes."""
    reduced = [
        Item("call", device=us(stage) * US, elements=elements(stage), stage=stage, blocking=True) for stage in range(4)
    ]
    return [*(item for item in pipeline(4) if item.what == "p2p" or item.what == "work"), *reduced, Item("sync")]


def test_groups_that_reduce_more_take_longer() -> None:
    """The last stage holds the head: its gradients are twelve times as large."""
    more = by_stage(lambda stage: 65536 * (1 + 11 * (stage == 3)), lambda stage: 150 * (1 + 11 * (stage == 3)))
    assert analyse_window(simulate(more, TWO, noise=NOISE)).slow_groups == []
    slow = by_stage(lambda _: 65536, lambda stage: 150 * (1 + 11 * (stage == 3)))
    (group,) = analyse_window(simulate(slow, TWO, noise=NOISE)).slow_groups
    assert (group.slow.ranks, group.slow.pairs) == ((6, 7), ())


def kernels(begin: np.ndarray, end: np.ndarray, step: np.ndarray) -> CallSequence:
    nothing, never = np.zeros(len(begin), np.int64), np.zeros(len(begin), np.bool_)
    return CallSequence(
        rows=np.arange(len(begin)), start=(begin * US).astype(np.int64), end=(end * US).astype(np.int64),
        must=nothing, may=nothing, together=never, symmetric=never, step=step, seq=nothing - 1, comms_id=nothing - 1,
    )  # fmt: skip


def test_messages_beside_a_slow_link_are_paired_in_order() -> None:
    """In a ring, the receiver also sends over a slow link: 800 us an exchange. The sender is ready for the next one
    80 us after an exchange began, and overlaps the receiver's last one for 700 us, its own for 80."""
    turn = np.arange(12)
    received = kernels(820.0 * turn, 820.0 * turn + 800, turn // 6)
    sent = kernels(np.maximum(820.0 * (turn - 1) + 95, 12), 820.0 * turn + 92, turn // 6)
    one, other = pair_on_one_clock(sent, received, np.zeros(12))
    assert one.tolist() == other.tolist() == turn.tolist()
    assert pair_on_one_clock(replace(sent, step=-turn), received, np.zeros(12))[1].tolist() != turn.tolist()


def test_the_numbers_of_devices_tell_the_hosts() -> None:
    """Ranks 0-3 and 4-7 with the devices 0-3: two hosts of four. If all call their device 0, nothing is known."""
    traces = simulate(pipeline(4), TWO)
    assert layout_of([make_view(t, t.rank) for t in traces]).spread([0, 1]) is None
    for trace in traces:
        on_device = trace.events.stream >= 0
        trace.events.pid[on_device] = trace.rank % 4
    layout = layout_of([make_view(t, t.rank) for t in traces])
    assert (layout.spread([0, 1, 3]), layout.spread([3, 4]), layout.spread([2, 4, 5])) == ((3,), (1, 1), (1, 2))
    assert layout.alike([3, 4])
    assert not layout.alike([0, 1])  # on one host, of a device that is not in the table
