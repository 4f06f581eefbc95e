"""One window of all its ranks, from views to who is late."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from rankscope.analysis.accounting.idle import IdleTime, idle_time
from rankscope.analysis.accounting.usage import Usage, step_bounds, step_usage, window_usage
from rankscope.analysis.matching.clocks import Clocks, align
from rankscope.analysis.matching.collectives import Matched, is_point_to_point, match
from rankscope.analysis.matching.host_clocks import HostClock
from rankscope.analysis.matching.waits import Waits, measure_waits
from rankscope.analysis.rank.cpu_only import settle_ends
from rankscope.analysis.rank.trim import whole_steps
from rankscope.analysis.rank.view import RankView, make_view
from rankscope.analysis.replay.build import build_graph
from rankscope.analysis.replay.segments import Plan, launch_times, plan_segments
from rankscope.analysis.replay.what_if import Replay, prepare, step_ends
from rankscope.analysis.stragglers.cost import Lateness, judge_ranks, screen
from rankscope.analysis.stragglers.profile import Profile, profile
from rankscope.trace.columns import RankTrace
from rankscope.trace.names import DEVICE_WORK

__all__ = ["WindowResult", "analyse_window"]

F64 = NDArray[np.float64]

LAUNCHED = 0.5
"""Work without a launch cannot be replayed; a full queue at the start of a window leaves some."""

MISSED = 0.02
"""A rank whose first event comes later than this share of a step was not recorded from the step's start."""

SCREENED_EVENTS = 500_000
"""A window of more events is replayed only if some rank may cost time: building its graph takes 8 s a million."""

FEW_RANKS = 16
"""In windows of more ranks only suspects are judged."""

MAX_REPLAY_ERROR = 0.03
"""Above this relative error of the unchanged replay no what-if is believed."""


@dataclass(slots=True)
class WindowResult:
    """Everything later stages read of one window. Lists have one entry per rank, in order of ``views``."""

    attempt: int
    window: int
    views: list[RankView]
    usage: list[Usage]
    steps: list[list[Usage]]
    lengths: list[NDArray[np.int64]]
    """How long each recorded step took, ns, by :func:`step_bounds`: on a device, as its host may run ahead."""
    matched: Matched
    clocks: Clocks
    waits: Waits
    idle: list[IdleTime]
    plan: Plan
    profiles: list[Profile]
    replay: Replay | None = None
    refused: str | None = None
    lateness: list[Lateness] = field(default_factory=list)
    pipeline: bool = False
    """Nothing but stages: no rank has a peer that does the same work."""
    staged: bool = False
    """Some ranks talk point to point."""
    notes: list[str] = field(default_factory=list)
    """What a reader of the report should know of this window."""
    step_ns: float | None = None
    """The job's step: from the end of the first step's last call to the last step's, over the steps between."""

    @property
    def step_count(self) -> int:
        """Steps every rank recorded."""
        return min((v.steps for v in self.views), default=0)


def analyse_window(traces: Sequence[RankTrace], hosts: dict[int, HostClock] | None = None) -> WindowResult:
    """Analyse the traces of one window; every trace must know its rank. ``hosts``: their clocks, where known."""
    views = [settle_ends(make_view(t, t.rank if t.rank is not None else -1)) for t in whole_steps(traces)]
    matched = match(views)
    clocks = align(views, matched, hosts)
    waits = measure_waits(views, matched, clocks)
    plan = plan_segments(views, matched, waits.steps)
    bounds = [step_bounds(v) for v in views]
    result = WindowResult(
        attempt=traces[0].attempt,
        window=traces[0].window,
        views=views,
        usage=[window_usage(v) for v in views],
        steps=[step_usage(v, b) for v, b in zip(views, bounds, strict=True)],
        lengths=[end - begin for begin, end in bounds],
        matched=matched,
        clocks=clocks,
        waits=waits,
        idle=[idle_time(v, c, matched, waits, bounds[c]) for c, v in enumerate(views)],
        plan=plan,
        profiles=[profile(v, plan.times[c], plan.shift[c], plan.size) for c, v in enumerate(views)],
    )
    _note_early(result)
    _note_unrun(result, traces)
    _replay(result)
    return result


def _replay(result: WindowResult) -> None:
    views, matched, clocks, waits = result.views, result.matched, result.clocks, result.waits
    result.step_ns = _own_step(result.lengths)
    if len(views) < 2:
        result.refused = "only one rank was recorded"
        return
    if not len(matched):
        result.refused = "no collective was recognised as the same call on two ranks"
        return
    if not result.step_count:
        result.refused = "the traces have no step marks"
        return
    if any(_launched(v) < LAUNCHED for v in views if v.device):
        result.refused = "most device work has no recorded launch"
        return
    ends = step_ends(matched, waits)
    if not len(ends):
        result.refused = "no step contains a matched collective"
        return
    if len(ends) > 1:
        result.step_ns = float(ends[-1] - ends[0]) / (len(ends) - 1)
    peers = result.plan.peers
    point_to_point = np.array([is_point_to_point(k) for k in matched.kind], np.bool_)
    lonely = [c for c in range(len(views)) if len(peers[c]) < 2]
    result.staged = bool(point_to_point.any())
    result.pipeline = bool(point_to_point.all()) or (result.staged and len(lonely) == len(views))
    suspects = screen(matched, waits, result.step_ns or 0.0, len(ends))
    if sum(len(v.trace.events) for v in views) > SCREENED_EVENTS and not len(suspects):
        result.lateness = [Lateness(np.zeros(len(ends))) for _ in views]
        return
    graph = build_graph(views, matched, clocks, waits, result.plan)
    begin = min(float(clocks.aligned(c, np.array([v.start]))[0]) for c, v in enumerate(views))
    replay = prepare(graph, matched, waits, begin, result.plan)
    result.replay = replay
    if replay is None:
        result.refused = "no step contains a matched collective"
        return
    if replay.error > MAX_REPLAY_ERROR:
        result.refused = f"replaying the window unchanged misses its length by {100 * replay.error:.1f} %"
        return
    if not result.pipeline and result.step_ns:
        whole = _comparable(result)
        if not whole.any():
            result.refused = "the ranks' windows have no stretch in common"
            return
        asked = np.arange(len(views)) if len(views) <= FEW_RANKS else suspects
        result.lateness = judge_ranks(replay, views, result.profiles, result.step_ns, whole, asked)


def _note_early(result: WindowResult) -> None:
    """Say which calls are left out of the waits because the recording began in them."""
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
    """Say which steps are left out because the recording ended before some device had run them."""
    left = {n for v, t in zip(result.views, traces, strict=True) for n in t.steps.number[v.steps :].tolist()}
    if left:
        which = f"step {min(left)} is" if len(left) == 1 else f"steps {min(left)} to {max(left)} are"
        result.notes.append(
            f"attempt {result.attempt}, window {result.window}: {which} left out, because on some rank the recording "
            "ended before the device had run all of it"
        )


def _launched(view: RankView) -> float:
    """Share of the device work of which the launching call is known."""
    launch = view.trace.events.launch[np.isin(view.kind, DEVICE_WORK)]
    return float((launch >= 0).mean()) if len(launch) else 1.0


def _comparable(result: WindowResult) -> NDArray[np.bool_]:
    """R x S: segments that a rank and all its peers recorded from end to end. A window may be cut on one of them."""
    plan, views = result.plan, result.views
    alone = np.array([plan.whole(c) for c in range(len(views))])
    for column, (view, own) in enumerate(zip(views, result.profiles, strict=True)):
        extra = np.setdiff1d(np.array(result.matched.extra[column], np.int64), plan.rows[column])
        inside = np.searchsorted(own.bounds, launch_times(view, extra), side="right") - 1 + plan.shift[column]
        alone[column, inside[(inside >= 0) & (inside < plan.size)]] = False
        first = view.trace.events.start[view.chain]
        if len(first) and int(first[0]) - view.start > MISSED * (result.step_ns or 0.0):
            alone[column, plan.shift[column]] = False
    teams = {id(team): team for team in plan.peers if team}
    together = {key: alone[team].all(axis=0) for key, team in teams.items()}
    return np.array([together.get(id(plan.peers[c]), alone[c]) for c in range(len(views))])


def _own_step(lengths: Sequence[NDArray[np.int64]]) -> float | None:
    """Median step of the slowest rank, ns."""
    return max((float(np.median(own)) for own in lengths if len(own)), default=None)
