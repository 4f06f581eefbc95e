"""Folders of sweeps with runs that have ended, made without launches."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from rankscope.records.codec import to_json
from rankscope.records.report import Action, ClockReport, ClusterReport, CollectivesReport, RunInfo, Verdict
from rankscope.records.sweep import SweepJob, SweepPlan, SweepSetting
from rankscope.sweeps.folder import SweepDir

Ended = Callable[..., SweepDir]


def report(step_ms: float, actions: list[Action]) -> ClusterReport:
    return ClusterReport(
        run=RunInfo(source="run", world_size=2),
        ranks=[],
        clock=ClockReport(method="none"),
        collectives=CollectivesReport(count=0, matched_pct=None, method="none"),
        verdict=Verdict(kind="comm_bound", sentence="Communication is the limit.", step_ms=step_ms),
        actions=actions,
    )


def plan(*values: int, repeats: int = 3) -> SweepPlan:
    settings = [
        SweepSetting(
            number=number,
            name=f"bucket_cap_mb={value}",
            overrides=[f"script.bucket_cap_mb={value}"],
            knobs={"bucket_cap_mb": str(value)},
        )
        for number, value in enumerate(values, start=1)
    ]
    return SweepPlan(words=["train.py"], settings=settings, repeats=repeats)


@pytest.fixture
def ended(tmp_path: Path) -> Ended:
    """A sweep of which runs have ended: (setting, repeat) -> recorded step in ms, or None of one that has failed."""

    def make(planned: SweepPlan, steps: dict[tuple[int, int], float | None], actions: list[Action]) -> SweepDir:
        sweep = SweepDir(tmp_path / "sweep")
        sweep.begin(planned, shown="sweep")
        for (setting, repeat), ms in steps.items():
            run = sweep.run(setting, repeat)
            (run / "report").mkdir(parents=True)
            if ms is not None:
                (run / "report" / "report.json").write_text(to_json(report(ms, actions)))
            code = 1 if ms is None else 0
            sweep.note(SweepJob(setting=setting, repeat=repeat, folder=run.name, exit_code=code, seconds=1.0))
        return sweep

    return make
