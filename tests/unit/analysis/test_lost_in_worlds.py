"""A twentieth of all device records is lost on every rank, in all meshes: rings, pipelines, DDP, FSDP, TP, PP x DP.

Jobs of ``tests/support/worlds``, without sequence numbers, so that order and times alone tell which call is which. What
is right is taken from the same traces before anything was lost, where numbers tell.
"""

from __future__ import annotations

import copy
from collections import Counter, defaultdict
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from tests.support.worlds.catalogue import World, simulated
from tests.support.worlds.faults import Fault

from rankscope.analysis.matching.collectives import match
from rankscope.analysis.pipeline import analyze
from rankscope.analysis.rank.view import make_view
from rankscope.records.report import Verdict
from rankscope.trace.columns import RankTrace
from rankscope.trace.files.load import LoadResult, load_traces

from .hurt import keep

pytestmark = pytest.mark.data

LOST = 0.05
JOBS: dict[str, tuple[Fault, float]] = {
    "ddp8": (Fault("slow_device", (2,), 1.3), 0.0),
    "fsdp4": (Fault("pause", (1,), 8), 0.0),
    "tp4": (Fault("slow_device", (3,), 1.3), 0.0),
    "tpdp8": (Fault("input", (4,), 6), 0.0),
    "ep4": (Fault("input", (2,), 6), 0.0),
    "pp4": (Fault("slow_device", (1,), 1.4), 0.03),
    "ppdp8": (Fault("input", (4,), 10), 0.01),
    "cp4": (Fault("slow_device", (2,), 1.3), 0.05),
    "cp8": (Fault("input", (2,), 6), 0.01),
}
"""A fault, and the share of records that may be taken for another call's. In a pipeline and round a ring of which one
rank is late, neighbours are whole calls apart: which of two was lost on either side cannot always be told."""

Place = tuple[int, int, int]
"""Rank, start and stream of a call: what survives the loss of others."""


@cache
def job(name: str, late: bool) -> tuple[list[RankTrace], dict[Place, int], Verdict]:
    kind = name.rstrip("0123456789")
    fault = JOBS[name][0] if late else None
    made = simulated(World(f"lost-{name}-{late}", kind, int(name[len(kind) :]), fault, seed=3))
    with TemporaryDirectory() as folder:
        for rank, text in enumerate(made.texts):
            (Path(folder) / f"rank_{rank}.json").write_text(text)
        traces = load_traces([Path(folder)], workers=1, cache=False).traces
    verdict = analyze(LoadResult(traces=copy.deepcopy(traces), sources=[]), hta=False).verdict
    return traces, {place: call for call, places in calls_of(traces).items() for place in places}, verdict


def calls_of(traces: list[RankTrace]) -> dict[int, list[Place]]:
    views = [make_view(trace, trace.rank) for trace in traces]
    matched, found = match(views), defaultdict(list)
    for column, view in enumerate(views):
        mine = matched.of(column)
        events = view.trace.collectives.event[matched.row[mine]]
        where = zip(view.trace.events.start[events].tolist(), view.trace.events.stream[events].tolist(), strict=True)
        for call, (start, stream) in zip(matched.call[mine].tolist(), where, strict=True):
            found[call].append((view.rank, start, stream))
    return found


def damaged(traces: list[RankTrace], seed: int) -> list[RankTrace]:
    traces, rng = copy.deepcopy(traces), np.random.default_rng(seed)
    for trace in traces:
        trace.collectives.seq[:] = -1
        trace.collectives.comms_id = [""] * len(trace.collectives)
        keep(trace, (trace.events.stream < 0) | (rng.random(len(trace.events)) >= LOST))
    return traces


# rings and pipelines of 8 ranks: those of 4 say the same
@pytest.mark.parametrize("name", [pytest.param(n, marks=[pytest.mark.long] * (n in ("cp8", "ppdp8"))) for n in JOBS])
def test_hardly_a_record_is_taken_for_another_calls(name: str) -> None:
    traces, truth, _ = job(name, late=True)
    for seed in range(2):
        found = calls_of(damaged(traces, seed))
        wrong = 0
        for places in found.values():
            said = Counter(truth.get(place, -1) for place in places)
            wrong += len(places) - said.most_common(1)[0][1]
        assert wrong <= JOBS[name][1] * sum(map(len, found.values()))


@pytest.mark.parametrize("late", [False, True], ids=["healthy", "late"])
# ep4 is bound by communication by a hair; the larger jobs take a second a trial
@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[pytest.mark.long] * (n == "tp4" or n.endswith("8"))) for n in JOBS if n != "ep4"]
)
def test_the_verdict_stays_in_most_trials(name: str, late: bool) -> None:
    traces, _, whole = job(name, late)
    stays = 0
    for seed in range(5):
        found = analyze(LoadResult(traces=damaged(traces, seed), sources=[]), hta=False).verdict
        assert set(found.ranks) <= set(JOBS[name][0].ranks if late else ())
        stays += (found.kind, found.ranks) == (whole.kind, whole.ranks)
    assert stays >= 4
