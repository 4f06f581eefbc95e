"""What-ifs compared with the same change in a simulated job, and exposure by module."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from rankscope.analysis.evidence.combined_gains import steps_then
from rankscope.analysis.replay.graph import Work
from rankscope.analysis.tables.collective_costs import exposed_per_call
from rankscope.analysis.tables.critical_path import critical_path_row
from rankscope.analysis.tables.modules import exposed_by_module, module_rows
from rankscope.analysis.tables.summary import group_rows
from rankscope.analysis.windows.analyse import analyse_window
from rankscope.records.report import Action
from rankscope.trace.columns import Steps
from rankscope.trace.steps import step_of

from .test_worlds import NOISE, SMALL, period_ms
from .worlds import MS, US, Fault, Item, Mesh, by_hand, simulate


def gained_ms(per_step) -> float:
    """Leaving out the first step, whose beginning no call marks."""
    return float(np.mean(per_step[1:])) / 1e6


def test_an_ideal_network_gains_what_a_job_without_transfers_gains() -> None:
    program = [replace(i, device=500 * US) if i.what == "call" else i for i in by_hand()]
    ideal = [replace(i, device=0) if i.what == "call" else i for i in program]
    replay = analyse_window(simulate(program, SMALL, noise=NOISE)).replay
    truth = period_ms(simulate(program, SMALL, noise=NOISE)) - period_ms(simulate(ideal, SMALL, noise=NOISE))
    assert gained_ms(replay.gains(replay.without(Work.TRANSFER))) == pytest.approx(truth, rel=0.1)
    # compute is longer than the transfers, so that hiding them is as good as having none
    assert gained_ms(replay.hidden()) == pytest.approx(truth, rel=0.1)


def test_hidden_transfers_still_take_their_time() -> None:
    """8 transfers of 3 ms beside about 5 ms of compute: the step cannot become shorter than 24 ms."""
    program = [replace(i, device=3 * MS) if i.what == "call" else i for i in by_hand(8, tp=False, work_us=150)]
    replay = analyse_window(simulate(program, Mesh(dp=4), steps=4)).replay
    length = np.diff(replay.unchanged) - replay.hidden()[1:]
    assert length / 1e6 == pytest.approx([24, 24, 24], rel=0.01)


def test_steps_without_calls_share_what_the_end_of_them_gains() -> None:
    """Each iteration has three step marks, and calls in the last of them only, as with accumulated gradients; rank 2
    has 4 ms more. It costs 4 ms an iteration, and a third of that a step."""
    faults = [Fault(2, Item("work", device=4 * MS), before=8)]
    traces = simulate(by_hand(tp=False), Mesh(dp=4), steps=4, faults=faults)
    once = analyse_window(traces).replay
    for trace in traces:
        first_call = int(trace.events.start[trace.events.launch[trace.collectives.event]].min())
        within = (first_call - int(trace.steps.start[0])) // 2  # two marks before the first call of each iteration
        start = np.concatenate([[s, s + within // 2, s + within] for s in trace.steps.start.tolist()])
        trace.steps = Steps(np.arange(len(start)), start, np.diff(start, append=trace.steps.end[-1]))
        trace.events.step[:] = step_of(trace.events, trace.steps)
    window = analyse_window(traces)
    assert window.replay.steps == 3 * once.steps == 12
    gains = window.replay.gains(window.replay.equalised(2))
    assert gained_ms(gains[2:]) == pytest.approx(4 / 3, rel=0.1)
    assert gains.sum() == pytest.approx(once.gains(once.equalised(2)).sum(), rel=0.02)
    assert gains[3] == gains[4] == gains[5]


def test_balanced_compute_gains_what_even_shares_gain() -> None:
    """Rank 2 of 4 has 4 ms more in front of the first gradients; shared out it is 1 ms on each."""
    program, mesh = by_hand(tp=False), Mesh(dp=4)
    uneven = simulate(program, mesh, faults=[Fault(2, Item("work", device=4 * MS), before=8)])
    even = simulate(program, mesh, faults=[Fault(r, Item("work", device=1 * MS), before=8) for r in range(4)])
    replay = analyse_window(uneven).replay
    assert gained_ms(replay.gains(replay.balanced())) == pytest.approx(period_ms(uneven) - period_ms(even), rel=0.1)


def test_the_critical_path_is_on_the_rank_with_more_work() -> None:
    """Rank 2 of 4 has 4 ms more; what is before its last call is on its device, and a step's pieces are its length."""
    window = analyse_window(
        simulate(by_hand(tp=False), Mesh(dp=4), faults=[Fault(2, Item("work", device=4 * MS), before=8)])
    )
    path = critical_path_row([window])
    assert sum(piece.duration_ms for piece in path.pieces) == pytest.approx(path.step_ms)
    most = path.parts[0]
    assert (most.rank, most.kind) == (2, "compute")
    assert 4.0 <= most.ms_per_step <= path.step_ms
    assert max(path.pieces, key=lambda piece: piece.duration_ms).rank == 2


def test_gains_of_several_changes_do_not_add_up() -> None:
    """Before the same call rank 2 has 4 ms more and rank 1 has 2: either alone saves 2 or nothing, both save 4."""
    faults = [Fault(2, Item("work", device=4 * MS), before=8), Fault(1, Item("work", device=2 * MS), before=8)]
    window = analyse_window(simulate(by_hand(tp=False), Mesh(dp=4), faults=faults))

    def mend(rank: int, saves: float) -> Action:
        return Action(code="mend_extra_compute", text="", ranks=[rank], kind="replay", saves_ms=saves)

    late, other = mend(2, 2.0), mend(1, 2.0)
    last = Action(code="record_shapes", text="", ranks=[], kind="bound", saves_ms=1.0)
    assert steps_then([late, other, last], [window], 20.0) == [18.0, pytest.approx(16.0, abs=0.1), None]
    # no more than what was said of the second by itself; and what no replay can make has no successor
    assert steps_then([late, mend(1, 0.5)], [window], 20.0) == [18.0, 17.5]
    assert steps_then([last, late], [window], 20.0) == [19.0, None]
    assert steps_then([late, mend(3, 2.0)], [window], 20.0)[1] == pytest.approx(18.0, abs=0.1), "rank 3 is not late"


def test_without_host_overhead_a_launch_bound_step_is_its_kernels() -> None:
    """30 launches of 200 us each with kernels of 20 us: 6 ms of host and nothing to hide it."""
    program = [*[Item("work", host=200 * US, device=20 * US)] * 30, Item("call", device=50 * US), Item("sync")]
    replay = analyse_window(simulate(program, Mesh(dp=2))).replay
    left = float(np.diff(replay.marks(replay.without(Work.HOST)))[1:].mean()) / 1e6
    assert 0.65 <= left <= 1.2  # 30 x 20 us and a transfer of 50, plus what launches take


@pytest.mark.data
def test_exposure_is_reported_by_module(recorded) -> None:
    """Four layers, each gathered and reduced; all exposed communication belongs to one of the eight."""
    window = analyse_window(recorded("gloo_fsdp2_none").traces)
    rows = module_rows([window])
    found = exposed_by_module([window], rows)
    # gloo has no reduce-scatter of its own
    assert set(found) == {f"{what} of {layer}" for what in ("all-gather", "all-reduce") for layer in range(4)}
    assert {(r.module, r.collective): r.calls_per_step for r in rows} == {
        (str(layer), what): calls for layer in range(4) for what, calls in (("all_gather", 2.0), ("all_reduce", 1.0))
    }
    assert sum(found.values()) == pytest.approx(exposed_per_call(window).sum() / 1e6 / window.step_count)


@pytest.mark.data
def test_exposure_is_reported_by_bucket(recorded) -> None:
    window = analyse_window(recorded("ddp_healthy").traces)
    rows = module_rows([window])
    last = window.waits.step[window.matched.of(0)] == window.step_count - 1
    assert {r.module for r in rows} == {f"DDP bucket {n + 1}" for n in range(int(last.sum()))}
    assert all(r.calls_per_step == 1.0 and r.bus_gb_s for r in rows)
    # every call is one of a bucket
    [group] = group_rows([window])
    for name in ("wait_ms_per_step", "transfer_ms_per_step", "exposed_ms_per_step", "calls_per_step"):
        assert sum(getattr(r, name) for r in rows) == pytest.approx(getattr(group, name))
