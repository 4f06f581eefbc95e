"""Analysis of one window of all its ranks, from views to late ranks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from rankscope.analysis.accounting.idle import IdleTime, idle_time
from rankscope.analysis.accounting.usage import Usage, device_times, step_bounds, step_usage, window_usage
from rankscope.analysis.clocks.alignment import Clocks, align
from rankscope.analysis.clocks.hosts import HostClock
from rankscope.analysis.clocks.remarks import remarks
from rankscope.analysis.clocks.steps import JobSteps
from rankscope.analysis.clocks.waits import Waits, measure_waits
from rankscope.analysis.matching.collectives import Matched, match
from rankscope.analysis.rank.cpu_only import settle_ends
from rankscope.analysis.rank.devices import devices
from rankscope.analysis.rank.intervals import Spans
from rankscope.analysis.rank.launch_clock import settle_launches
from rankscope.analysis.rank.losses import Losses, find_losses
from rankscope.analysis.rank.trim import whole_steps
from rankscope.analysis.rank.view import RankView, make_view
from rankscope.analysis.replay.alone import ALONE
from rankscope.analysis.replay.segments import no_plan, plan_segments, without
from rankscope.analysis.stragglers.profile import Profile, same_program
from rankscope.analysis.windows.common import common_window
from rankscope.analysis.windows.lend_steps import lend_steps
from rankscope.analysis.windows.losses import too_much_lost, what_is_missing
from rankscope.analysis.windows.outsiders import foreign, unlaunched
from rankscope.analysis.windows.replay import profile_of, replay_window
from rankscope.analysis.windows.result import WindowResult
from rankscope.analysis.windows.stages import Failed, Stages
from rankscope.trace.columns import RankTrace
from rankscope.trace.scratch import Scratch

__all__ = ["ALONE", "WindowResult", "analyse_window"]

F64 = NDArray[np.float64]


def analyse_window(
    traces: Sequence[RankTrace], hosts: dict[int, HostClock] | None = None, failed: Failed | None = None
) -> WindowResult:
    """Analyse the traces of one window; the rank of every trace must be known.

    Args:
        traces: one per rank.
        hosts: the clocks of their hosts, where known.
        failed: called with the stage and the error if a stage fails; the others continue. Without it errors are raised.
    """
    stages, notes = Stages(failed), []
    losses = stages.run("losses", lambda: find_losses(traces), lambda: [Losses(0, 0, True) for _ in traces])
    left = {_rank(t): own.words() for t, own in zip(traces, losses, strict=True) if own.blind}
    seen = [t for t in traces if _rank(t) not in left]
    seen, moved = _one_clock(seen)
    notes += moved
    whole = stages.run("whole steps", lambda: whole_steps(seen), lambda: list(seen))
    views, scratch, nobody_left = list[RankView](), Scratch(), dict[int, str]()
    for trace in whole:
        view = stages.run(f"rank {_rank(trace)}", partial(_view, trace), lambda: None)
        if view is None:
            left[_rank(trace)] = "this rank could not be analysed; see the errors"
        else:
            scratch.take(view)
            views.append(view)
    views = _without(views, stages.run("launches", lambda: unlaunched(views), lambda: nobody_left), left)
    matched, clocks, waits = _compared(views, hosts, stages)
    others = stages.run("foreign calls", lambda: foreign(views, matched, clocks, waits), lambda: nobody_left)
    if others:
        _without(views, others, left)
        # whole steps and losses of the other ranks were found by comparison with these
        return _noted(analyse_window([t for t in traces if _rank(t) not in left], hosts, failed), left)
    nothing_lent: dict[int, tuple[RankTrace, int]] = {}
    lent = stages.run("steps of ranks without marks", lambda: lend_steps(views, matched, clocks), lambda: nothing_lent)
    if lent:
        notes += _lent(views, lent)
        views = [_view(lent[c][0]) if c in lent else v for c, v in enumerate(views)]
        matched, clocks, waits = _compared(views, hosts, stages)
    views, cut = stages.run("common window", lambda: common_window(views, matched, clocks, waits), lambda: (views, []))
    notes += cut
    nothing_missing: dict[int, str] = {}
    lacking = stages.run("losses", lambda: what_is_missing(traces, losses), lambda: nothing_missing)
    lacking = {rank: words for rank, words in lacking.items() if rank not in left}
    nobody: set[int] = set()
    lossy = {_rank(t) for t, own in zip(traces, losses, strict=True) if own.lost}
    unsound = stages.run("losses", lambda: too_much_lost([v.trace for v in views]) if lossy else nobody, lambda: nobody)
    unequal = [c for c, v in enumerate(views) if v.rank in unsound]
    plan = stages.run(
        "segments",
        lambda: without(plan_segments(views, matched, waits.steps), unequal),
        lambda: no_plan(len(views)),
    )
    scratch.take(plan)
    accounts = [
        stages.run(f"time of rank {v.rank}", partial(_account, v, c, matched, waits), partial(_no_account, v))
        for c, v in enumerate(views)
    ]
    result = WindowResult(
        attempt=traces[0].attempt,
        window=traces[0].window,
        views=views,
        usage=[a.usage for a in accounts],
        steps=[a.steps for a in accounts],
        bounds=[a.bounds for a in accounts],
        lengths=[a.lengths for a in accounts],
        matched=matched,
        clocks=clocks,
        waits=waits,
        idle=[a.idle for a in accounts],
        plan=plan,
        profiles=[],
        left=left,
        partial=lacking,
        unsound=unsound,
    )
    where = f"attempt {result.attempt}, window {result.window}"
    nothing_to_remark: list[str] = []
    remarked = stages.run(
        "remarks", lambda: remarks(views, matched, clocks, waits.steps, lossy), lambda: nothing_to_remark
    )
    result.notes = [f"{where}: {note}" for note in [*notes, *_several_devices(views), *remarked]]
    result.notes += [f"{where}: rank {rank}: {words}" for rank, words in sorted({**left, **lacking}.items())]
    _note_early(result)
    _note_unrun(result, [t for t in seen if _rank(t) not in left])
    result.step_ns = _own_step(result.lengths)
    result.profiles = stages.run(
        "profiles",
        lambda: [_kept(profile_of(view, column, plan), scratch) for column, view in enumerate(views)],
        list,
    )
    if len(result.profiles) == len(views):
        result.plan = stages.run("ranks to compare", lambda: same_program(plan, result.profiles), lambda: plan)
    else:
        result.refused = "the causes of each rank could not be measured; see the errors"
        return result

    def failing() -> None:
        result.refused, result.replay, result.lateness = "the replay failed; see the errors", None, []

    stages.run("replay", lambda: replay_window(result), failing)
    return result


def _noted(result: WindowResult, left: dict[int, str]) -> WindowResult:
    """Add the ranks that were left out before this window was analysed."""
    result.left = {**left, **result.left}
    where = f"attempt {result.attempt}, window {result.window}"
    result.notes += [f"{where}: rank {rank}: {words}" for rank, words in sorted(left.items())]
    return result


@dataclass(frozen=True, slots=True)
class _Account:
    """Where the time of one rank is spent."""

    usage: Usage
    steps: list[Usage]
    bounds: Spans
    lengths: NDArray[np.int64]
    idle: IdleTime


def _account(view: RankView, column: int, matched: Matched, waits: Waits) -> _Account:
    bounds, devices = step_bounds(view), device_times(view)
    idle = idle_time(devices, column, matched, waits, bounds)
    return _Account(window_usage(devices), step_usage(devices, bounds), bounds, bounds[1] - bounds[0], idle)


def _without(views: list[RankView], columns: dict[int, str], left: dict[int, str]) -> list[RankView]:
    """Return the views without those of some columns, whose reasons are added to ``left``."""
    left |= {views[column].rank: why for column, why in columns.items()}
    return [view for column, view in enumerate(views) if column not in columns]


def _kept(own: Profile, scratch: Scratch) -> Profile:
    scratch.take(own)
    return own


def _no_account(view: RankView) -> _Account:
    """Return the account of a rank whose time could not be measured: the steps it marked, and no time in them."""
    nothing = Usage(0, 0, 0, 0, 0, 0, 0)
    idle = IdleTime(0, 0, 0, 0, 0, np.zeros(view.steps, np.int64), np.zeros(view.steps, np.int64))
    steps = view.trace.steps
    return _Account(nothing, [nothing] * view.steps, (steps.start, steps.end), steps.duration, idle)


def _rank(trace: RankTrace) -> int:
    return trace.rank if trace.rank is not None else -1


def _view(trace: RankTrace) -> RankView:
    return settle_ends(make_view(trace, _rank(trace)))


def _one_clock(traces: Sequence[RankTrace]) -> tuple[list[RankTrace], list[str]]:
    """Return the traces with each host clock corrected to its device clock, and what was corrected."""
    settled = [settle_launches(t) for t in traces]
    notes = [
        f"rank {_rank(t)}: kernels seem to begin before their launches; its host times are taken {ns / 1e3:.1f} us "
        "earlier"
        for t, ns in settled
        if ns
    ]
    return [t for t, _ in settled], notes


def _compared(
    views: Sequence[RankView], hosts: dict[int, HostClock] | None, stages: Stages
) -> tuple[Matched, Clocks, Waits]:
    """Return matched calls, clocks and waits. For a stage that fails, return its result without any matched call."""
    ranks = tuple(v.rank for v in views)
    nothing = Matched(ranks, known=[np.empty(0, np.int32) for _ in ranks], extra=[[] for _ in ranks])
    matched = stages.run("matching", lambda: match(views), lambda: nothing)
    clocks = stages.run("clocks", lambda: align(views, matched, hosts), lambda: align(views, nothing))
    waits = stages.run("waits", lambda: measure_waits(views, matched, clocks), lambda: None)
    if waits is None:
        matched, waits = nothing, _no_waits(len(views))
    return matched, clocks, waits


def _no_waits(ranks: int) -> Waits:
    """Return the waits of a window without matched calls."""
    times, codes = np.empty(0), np.empty(0, np.int32)
    steps = JobSteps([0] * ranks, np.empty(0, np.int64), np.empty(0, np.int64))
    return Waits(times, times, times, times, codes, codes, np.empty(0, np.bool_), steps)


def _lent(views: Sequence[RankView], lent: dict[int, tuple[RankTrace, int]]) -> list[str]:
    return [
        f"rank {views[c].rank} was recorded without step marks (ProfilerStep): its steps are those of rank "
        f"{views[lender].rank}, told by the calls they share"
        for c, (_, lender) in sorted(lent.items())
    ]


def _several_devices(views: Sequence[RankView]) -> list[str]:
    many = {v.rank: n for v in views if v.device and len(n := devices(v)) > 1}
    return [
        f"rank {rank} drives {len(numbers)} devices ({', '.join(map(str, numbers[:8]))}): its times are means over them"
        for rank, numbers in many.items()
    ]


def _note_early(result: WindowResult) -> None:
    """Note which calls are left out of the waits because the recording began in them."""
    early = np.flatnonzero(result.waits.early)
    if not len(early):
        return
    late = [result.views[c].rank for c in np.unique(result.waits.last[early]).tolist()]
    some = ", ".join(map(str, late[:8])) + (" ..." if len(late) > 8 else "")
    many = "the first collective is" if len(early) == 1 else f"{len(early)} collectives are"
    result.notes.append(
        f"attempt {result.attempt}, window {result.window}: {many} left out of the waiting times, because recording "
        f"began on rank {some} when others had arrived already"
    )


def _note_unrun(result: WindowResult, traces: Sequence[RankTrace]) -> None:
    """Note which steps are left out because the recording ended before some device had run them."""
    left = {n for v, t in zip(result.views, traces, strict=True) for n in t.steps.number[v.steps :].tolist()}
    if left:
        which = f"step {min(left)} is" if len(left) == 1 else f"steps {min(left)} to {max(left)} are"
        result.notes.append(
            f"attempt {result.attempt}, window {result.window}: {which} left out, because on some rank the recording "
            "ended before the device had run all of it"
        )


def _own_step(lengths: Sequence[NDArray[np.int64]]) -> float | None:
    """Return the median step of the slowest rank, ns."""
    return max((float(np.median(own)) for own in lengths if len(own)), default=None)
