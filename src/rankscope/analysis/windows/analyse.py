"""Analysis of one window of all its ranks, from views to late ranks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from math import inf

import numpy as np
from numpy.typing import NDArray

from rankscope.analysis.accounting.idle import IdleTime, idle_time
from rankscope.analysis.accounting.usage import Usage, step_bounds, step_usage, window_usage
from rankscope.analysis.clocks.alignment import Clocks, align
from rankscope.analysis.clocks.hosts import HostClock
from rankscope.analysis.clocks.remarks import remarks
from rankscope.analysis.clocks.steps import JobSteps, step_length
from rankscope.analysis.clocks.waits import Waits, measure_waits
from rankscope.analysis.matching.collectives import Matched, match
from rankscope.analysis.matching.rings import pipeline_channels
from rankscope.analysis.rank.cpu_only import settle_ends
from rankscope.analysis.rank.devices import devices
from rankscope.analysis.rank.intervals import Spans
from rankscope.analysis.rank.launch_clock import settle_launches
from rankscope.analysis.rank.losses import Losses, find_losses
from rankscope.analysis.rank.select import one_of
from rankscope.analysis.rank.trim import whole_steps
from rankscope.analysis.rank.view import RankView, make_view
from rankscope.analysis.replay.alone import ALONE, replay_alone
from rankscope.analysis.replay.build import begins, build_graph
from rankscope.analysis.replay.segments import Plan, no_plan, plan_segments, without
from rankscope.analysis.replay.what_if import Replay, prepare, step_ends
from rankscope.analysis.stragglers.candidates import Window
from rankscope.analysis.stragglers.cost import RankCost, judge_ranks, screen
from rankscope.analysis.stragglers.measured import join, measure
from rankscope.analysis.stragglers.model_error import MESHES, mesh_of
from rankscope.analysis.stragglers.profile import Profile, profile, same_program
from rankscope.analysis.stragglers.slow_groups import SlowGroup, slow_groups
from rankscope.analysis.windows.common import common_window
from rankscope.analysis.windows.comparable import comparable
from rankscope.analysis.windows.lend_steps import lend_steps
from rankscope.analysis.windows.losses import too_much_lost, what_is_missing
from rankscope.analysis.windows.stages import Failed, Stages
from rankscope.trace.columns import RankTrace
from rankscope.trace.names import DEVICE_WORK

__all__ = ["ALONE", "WindowResult", "analyse_window"]

F64 = NDArray[np.float64]

LAUNCHED = 0.5
"""Least share of device work with a known launch (work queued before the window has none): only such is replayed."""
SCREENED_EVENTS = 500_000
"""A window with more events (8 s per million to build the graph) is replayed only if some rank may cost time."""
FEW_RANKS = 16
"""In windows with more ranks the cost is computed for candidate ranks only."""
MAX_REPLAY_ERROR = 0.03
"""Above this relative error of the unchanged replay no what-if replay is used."""


@dataclass(slots=True)
class WindowResult:
    """All results for one window that later stages read. Lists have one entry per rank, in order of ``views``."""

    attempt: int
    window: int
    views: list[RankView]
    usage: list[Usage]
    steps: list[list[Usage]]
    bounds: list[Spans]
    """Begin and end of each recorded step, own clock, by :func:`step_bounds`."""
    lengths: list[NDArray[np.int64]]
    """Duration of each recorded step, ns, by :func:`step_bounds`; on the device if any, as its host may run ahead."""
    matched: Matched
    clocks: Clocks
    waits: Waits
    idle: list[IdleTime]
    plan: Plan
    profiles: list[Profile]
    replay: Replay | None = None
    refused: str | None = None
    lateness: list[RankCost] = field(default_factory=list)
    slow_groups: list[SlowGroup] = field(default_factory=list)
    visible: float = inf
    """The share by which a device must be slower than the others to be distinguished from noise; infinite: unknown."""
    pipeline: bool = False
    """All ranks are stages: no rank has a peer that does the same work."""
    staged: bool = False
    """Some ranks are stages of a pipeline."""
    mesh: str = MESHES[0]
    """One of :data:`MESHES`."""
    notes: list[str] = field(default_factory=list)
    """Remarks on this window for the reader of the report."""
    left: dict[int, str] = field(default_factory=dict)
    """Ranks without numbers although they have a trace -> why."""
    partial: dict[int, str] = field(default_factory=dict)
    """Ranks whose trace is incomplete -> what is missing."""
    unsound: set[int] = field(default_factory=set)
    """Those of them that lost too much to be compared with others."""
    step_ns: float | None = None
    """The job's mean step over the steps that every rank recorded (:func:`step_length`)."""

    @property
    def step_count(self) -> int:
        """Number of steps that every rank recorded."""
        return len(self.waits.steps.common)


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
    views: list[RankView] = []
    for trace in whole:
        view = stages.run(f"rank {_rank(trace)}", partial(_view, trace), lambda: None)
        if view is None:
            left[_rank(trace)] = "this rank could not be analysed; see the errors"
        else:
            views.append(view)
    matched, clocks, waits = _compared(views, hosts, stages)
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
        lambda: [_profile(view, column, plan) for column, view in enumerate(views)],
        list,
    )
    if len(result.profiles) == len(views):
        result.plan = stages.run("ranks to compare", lambda: same_program(plan, result.profiles), lambda: plan)
    else:
        result.refused = "the causes of each rank could not be measured; see the errors"
        return result

    def failing() -> None:
        result.refused, result.replay, result.lateness = "the replay failed; see the errors", None, []

    stages.run("replay", lambda: _replay(result), failing)
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
    bounds = step_bounds(view)
    idle = idle_time(view, column, matched, waits, bounds)
    return _Account(window_usage(view), step_usage(view, bounds), bounds, bounds[1] - bounds[0], idle)


def _no_account(view: RankView) -> _Account:
    """Return the account of a rank whose time could not be measured: the steps it marked, and no time in them."""
    nothing = Usage(0, 0, 0, 0, 0, 0, 0)
    idle = IdleTime(0, 0, 0, 0, 0, np.zeros(view.steps, np.int64))
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


def _profile(view: RankView, column: int, plan: Plan) -> Profile:
    return profile(view, plan.times[column], plan.shift[column], plan.size)


def _replay(result: WindowResult) -> None:
    views, matched, clocks, waits = result.views, result.matched, result.clocks, result.waits
    result.step_ns = step_length(views, clocks, waits.steps, result.bounds) or result.step_ns
    if len(views) < 2:
        result.refused = ALONE
        alone = replay_alone(views[0], matched, clocks, waits) if views else None
        if alone is not None and alone[1].error <= MAX_REPLAY_ERROR:
            (result.plan, result.replay), result.profiles = alone, [_profile(views[0], 0, alone[0])]
        return
    if len(views) - len(result.unsound) < 2:
        some = ", ".join(map(str, sorted(result.unsound)[:8]))
        result.refused = f"too many device records of rank {some} are missing to compare it with others"
        return
    if not len(matched):
        result.refused = "no collective was recognised as the same call on two ranks"
        return
    if not result.step_count:
        bare = [v.rank for v in views if not v.steps]
        if not bare:
            result.refused = "the ranks recorded no step in common"
        elif len(bare) == len(views):
            result.refused = "the traces have no step marks"
        else:
            result.refused = f"rank {', '.join(map(str, bare[:8]))} has no step marks"
        return
    if any(_launched(v) < LAUNCHED for v in views if v.device):
        result.refused = "most device work has no recorded launch"
        return
    ends = step_ends(matched, waits)
    if not len(ends):
        result.refused = "no step contains a matched collective"
        return
    peers = result.plan.peers
    staged = pipeline_channels(views, matched)[matched.channel]
    lonely = [c for c in range(len(views)) if len(peers[c]) < 2]
    result.staged = bool(staged.any())
    result.mesh = mesh_of(matched, staged=result.staged)
    result.pipeline = bool(staged.all()) or (result.staged and len(lonely) == len(views))
    suspects = screen(matched, waits, result.step_ns or 0.0, len(ends))
    if sum(len(v.trace.events) for v in views) > SCREENED_EVENTS and not len(suspects):
        result.lateness = [RankCost(np.zeros(len(ends))) for _ in views]
        return
    graph = build_graph(views, matched, clocks, waits, result.plan)
    begin = min(begins(v, c, clocks, waits.steps) for c, v in enumerate(views))
    replay = result.replay = prepare(graph, matched, waits, begin, result.plan)
    if replay is None:
        result.refused = "no step contains a matched collective"
        return
    if replay.error > MAX_REPLAY_ERROR:
        result.refused = f"replaying the window unchanged misses its length by {100 * replay.error:.1f} %"
        return
    if not result.pipeline and result.step_ns:
        whole, sound = comparable(
            views, result.profiles, result.plan, matched.extra, result.step_ns, lossy=bool(result.partial)
        )
        if not whole.any():
            result.refused = "the ranks' windows have no stretch in common"
            return
        asked = np.arange(len(views)) if len(views) <= FEW_RANKS else suspects
        result.lateness = judge_ranks(replay, views, result.profiles, result.step_ns, whole, sound, asked)
    else:  # no rank has a peer for its segments, but its kernels have
        result.lateness = [RankCost(np.zeros(replay.steps)) for _ in views]
    trusted = np.array([view.rank not in result.unsound for view in views])
    complete = not result.partial
    window = Window(
        replay, views, clocks, result.plan, result.profiles, waits.steps, trusted, complete, matched, result.mesh
    )
    measured, result.visible = measure(window, result.step_ns or 0.0)
    join(result.lateness, measured, result.step_ns or 0.0, device=any(view.device for view in views))
    result.slow_groups = slow_groups(replay, matched, waits, result.step_ns or 0.0, result.mesh)


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


def _launched(view: RankView) -> float:
    """Return the share of device work whose launch is known."""
    launch = view.trace.events.launch[one_of(view.kind, DEVICE_WORK)]
    return float((launch >= 0).mean()) if len(launch) else 1.0


def _own_step(lengths: Sequence[NDArray[np.int64]]) -> float | None:
    """Return the median step of the slowest rank, ns."""
    return max((float(np.median(own)) for own in lengths if len(own)), default=None)
