"""The replay of one window, and by it the cost of each rank; or the reason why there is none."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from rankscope.analysis.clocks.steps import step_length
from rankscope.analysis.links.slow_groups import slow_groups
from rankscope.analysis.matching.rings import pipeline_channels
from rankscope.analysis.rank.view import RankView
from rankscope.analysis.replay.alone import ALONE, replay_alone
from rankscope.analysis.replay.build import begins, build_graph
from rankscope.analysis.replay.segments import Plan
from rankscope.analysis.replay.what_if import Replay, prepare, step_ends
from rankscope.analysis.stragglers.candidates import Window
from rankscope.analysis.stragglers.cost import RankCost, judge_ranks, screen
from rankscope.analysis.stragglers.measured import join, measure
from rankscope.analysis.stragglers.model_error import mesh_of
from rankscope.analysis.stragglers.own_delays import delays_in_some_steps
from rankscope.analysis.stragglers.profile import Profile, profile
from rankscope.analysis.windows.comparable import comparable
from rankscope.analysis.windows.outsiders import LAUNCHED, NO_LAUNCHES, launched
from rankscope.analysis.windows.result import WindowResult
from rankscope.listing import named_ranks

__all__ = ["profile_of", "replay_window"]

I64 = NDArray[np.int64]

_NO_COLLECTIVE = "no step contains a matched collective"
SCREENED_EVENTS = 500_000
"""A window with more events (8 s per million to build the graph) is replayed only if some rank may cost time."""
FEW_RANKS = 16
"""In windows with more ranks the cost is computed for candidate ranks only."""
MAX_REPLAY_ERROR = 0.03
"""Above this relative error of the unchanged replay no what-if replay is used."""


def replay_window(result: WindowResult) -> None:
    """Replay the steps of a window, and determine what each rank and each process group costs.

    Sets ``step_ns``, the kind of mesh, ``replay``, ``lateness``, ``visible`` and ``slow_groups``, as far as the records
    suffice; otherwise ``refused`` states why not.
    """
    result.step_ns = step_length(result.views, result.clocks, result.waits.steps, result.bounds) or result.step_ns
    if len(result.views) < 2:
        result.refused = ALONE
        _replay_alone(result)
    else:
        result.refused = _incomparable(result) or _replay_all(result)


def profile_of(view: RankView, column: int, plan: Plan) -> Profile:
    """Return the causes of a rank's time in the segments of a plan."""
    return profile(view, plan.times[column], plan.shift[column], plan.size)


def _replay_alone(result: WindowResult) -> None:
    """Replay the steps of a single rank, for what a change of its work would gain."""
    if not result.views:
        return
    alone = replay_alone(result.views[0], result.matched, result.clocks, result.waits)
    if alone is not None and alone[1].error <= MAX_REPLAY_ERROR:
        result.plan, result.replay = alone
        result.profiles = [profile_of(result.views[0], 0, result.plan)]


def _incomparable(result: WindowResult) -> str | None:
    """Return why the records of the ranks do not suffice for a comparison; None if they do."""
    views = result.views
    if len(views) - len(result.unsound) < 2:
        lost = named_ranks(result.unsound)
        return f"too many device records of {lost} are missing to compare it with others"
    if not len(result.matched):
        return "no collective was recognised as the same call on two ranks"
    if not result.step_count:
        unmarked = [view.rank for view in views if not view.steps]
        if not unmarked:
            return "the ranks recorded no step in common"
        if len(unmarked) == len(views):
            return "the traces have no step marks"
        return f"{named_ranks(unmarked)} {'has' if len(unmarked) == 1 else 'have'} no step marks"
    if any(launched(view) < LAUNCHED for view in views if view.device):
        return NO_LAUNCHES
    return None


def _replay_all(result: WindowResult) -> str | None:
    """Replay the steps of all ranks, and compare the ranks. Returns the reason if that is not possible."""
    views, matched, clocks, waits = result.views, result.matched, result.clocks, result.waits
    step_ns = result.step_ns or 0.0
    steps = len(step_ends(matched, waits))
    if not steps:
        return _NO_COLLECTIVE
    _set_mesh(result)
    suspects = screen(matched, waits, step_ns, steps)
    if sum(len(view.trace.events) for view in views) > SCREENED_EVENTS and not len(suspects):
        result.lateness = [RankCost(np.zeros(steps)) for _ in views]
        return None
    graph = build_graph(views, matched, clocks, waits, result.plan)
    begin = min(begins(view, column, clocks, waits.steps) for column, view in enumerate(views))
    replay = result.replay = prepare(graph, matched, waits, begin, result.plan)
    if replay is None:
        return _NO_COLLECTIVE
    if replay.error > MAX_REPLAY_ERROR:
        return f"replaying the window unchanged misses its length by {100 * replay.error:.1f} %"
    window = _window(result, replay)
    if (why := _judge_by_places(result, window, suspects)) is not None:
        return why
    measured, result.visible, lost = measure(window, step_ns)
    join(result.lateness, measured, step_ns, device=window.device)
    result.slow_groups = slow_groups(window, waits, step_ns, lost)
    return None


def _set_mesh(result: WindowResult) -> None:
    """Determine whether ranks are stages of a pipeline, and whether any has a peer."""
    staged = pipeline_channels(result.views, result.matched)[result.matched.channel]
    result.staged = bool(staged.any())
    result.mesh = mesh_of(result.matched, staged=result.staged)
    no_peers = all(len(result.plan.peers[column]) < 2 for column in range(len(result.views)))
    result.pipeline = bool(staged.all()) or (result.staged and no_peers)


def _judge_by_places(result: WindowResult, window: Window, suspects: I64) -> str | None:
    """Determine the cost of each rank by its segments between two calls. Returns the reason if that is not possible."""
    views, replay = result.views, window.replay
    if result.pipeline or not result.step_ns:
        # No rank has a peer for its segments, but its kernels have, and its delays. On hosts alone, silence in some
        # steps may be the machine's.
        known = result.step_ns if window.device else None
        nothing = [RankCost(np.zeros(replay.steps)) for _ in views]
        result.lateness = delays_in_some_steps(window, known) if known else nothing
        return None
    whole, sound = comparable(
        views, result.profiles, result.plan, result.matched.extra, result.step_ns, lossy=bool(result.partial)
    )
    if not whole.any():
        return "the ranks' windows have no stretch in common"
    asked = np.arange(len(views)) if len(views) <= FEW_RANKS else suspects
    result.lateness = judge_ranks(replay, views, result.profiles, result.step_ns, whole, sound, asked)
    return None


def _window(result: WindowResult, replay: Replay) -> Window:
    """Return the window as the search for late ranks sees it."""
    return Window(
        replay,
        result.views,
        result.clocks,
        result.plan,
        result.profiles,
        result.waits.steps,
        trusted=np.array([view.rank not in result.unsound for view in result.views]),
        complete=not result.partial,
        matched=result.matched,
        mesh=result.mesh,
    )
