"""The configuration: defaults, limits, description."""

from __future__ import annotations

import dataclasses
from importlib import resources
from math import inf, nan
from pathlib import Path

import pytest
import yaml

from rankscope.config import (
    AnalysisConfig,
    BudgetConfig,
    CaptureConfig,
    GatherConfig,
    RunConfig,
    ScheduleConfig,
    StepsConfig,
    ToolConfig,
    to_agent_spec,
)
from rankscope.config_summary import plan_in_words
from rankscope.errors import ConfigError


@pytest.mark.parametrize(
    ("build", "said"),
    [
        (lambda: ScheduleConfig(skip_first=-1), "schedule.skip_first=-1 is below its limit of 0"),
        (lambda: ScheduleConfig(wait=-1), "schedule.wait=-1"),
        (lambda: ScheduleConfig(warmup=0), "schedule.warmup=0 is below its limit of 1; .*loses kernels"),
        (lambda: ScheduleConfig(active=0), "schedule.active=0"),
        (lambda: ScheduleConfig(repeat=0), "schedule.repeat=0"),
        (lambda: CaptureConfig(activities=[]), r"use \[auto\]"),
        (lambda: CaptureConfig(activities=["cpu", "cud"]), "did you mean cuda"),
        (lambda: RunConfig(dir=" "), "run.dir is empty"),
        (lambda: StepsConfig(source="optimiser"), "did you mean optimizer"),
        (lambda: StepsConfig(agreement_lead=0), "steps.agreement_lead=0"),
        (lambda: GatherConfig(timeout_s=0), "gather.timeout_s=0"),
        (lambda: GatherConfig(exit_grace_s=-1), "gather.exit_grace_s=-1"),
        (lambda: ScheduleConfig(active=1001), "schedule.active=1001 is above its limit of 1000; .*plan more windows"),
        (lambda: ScheduleConfig(warmup=10**6), "schedule.warmup=1000000 is above its limit of 1000"),
        (lambda: ScheduleConfig(repeat=10**6), "schedule.repeat=1000000 is above its limit of 10000"),
        (lambda: ScheduleConfig(skip_first=10**18), "schedule.skip_first=1000000000000000000 is above"),
        (lambda: ScheduleConfig(wait=10**18), "schedule.wait=1000000000000000000 is above"),
        (lambda: ScheduleConfig(every=10**18), "schedule.every=1000000000000000000 is above"),
        (lambda: BudgetConfig(windows=10**6), "budget.windows=1000000 is above its limit of 10000"),
        (lambda: BudgetConfig(megabytes=inf), "budget.megabytes=inf is above"),
        (lambda: BudgetConfig(megabytes=nan), "budget.megabytes=nan is below"),
        (lambda: BudgetConfig(step_pct=101), "budget.step_pct=101 is above its limit of 100"),
        (lambda: BudgetConfig(slow_step=inf), "budget.slow_step=inf is above"),
        (lambda: StepsConfig(agreement_lead=10**6), "steps.agreement_lead=1000000 is above"),
        (lambda: GatherConfig(timeout_s=inf), "gather.timeout_s=inf is above its limit of 86400"),
        (lambda: GatherConfig(exit_grace_s=nan), "gather.exit_grace_s=nan is below"),
        (lambda: CaptureConfig(ranks="0,99999999"), "names a rank beyond 1048575"),
        (lambda: CaptureConfig(ranks="9" * 5000), "names a rank beyond 1048575"),
    ],
)
def test_refuses_at_construction_with_value_limit_and_remedy(build: object, said: str) -> None:
    assert callable(build)
    with pytest.raises(ConfigError, match=said):
        build()


def test_windows_are_numbered_from_step_0() -> None:
    assert ScheduleConfig().windows() == [(13, 18)]
    assert ScheduleConfig(skip_first=0, wait=1, warmup=1, active=1, repeat=3).windows() == [(2, 2), (5, 5), (8, 8)]


def test_the_plan_in_words() -> None:
    words = plan_in_words(ToolConfig())
    assert words[0] == "steps 13 to 18 of every rank will be recorded (the first step is 0)"
    assert "19 steps" in words[1]
    assert words[2] == "recorded: CPU and the device in use, nothing that costs extra"
    assert "rankscope_runs/run_NNNN" in words[4]


def test_the_plan_tells_what_was_asked_for() -> None:
    config = ToolConfig(
        schedule=ScheduleConfig(skip_first=0, wait=1, warmup=1, active=1, repeat=5),
        capture=CaptureConfig(activities=["cpu"], with_stack=True, with_flops=True, profile_memory=True),
        run=RunConfig(dir="/shared/r"),
        steps=StepsConfig(source="user"),
        analysis=AnalysisConfig(enabled=False),
    )
    words = plan_in_words(config)
    assert words[0].startswith("steps 2, 5, 8 and 2 windows more of every rank")
    assert words[2] == "recorded: CPU, with input shapes, Python stacks (slow), memory, FLOPs"
    assert words[3:5] == ["steps are counted by user", "the run is kept in /shared/r"]
    assert "rankscope analyze" in words[5]
    single = plan_in_words(ToolConfig(schedule=ScheduleConfig(skip_first=2, wait=0, warmup=1, active=1)))
    assert single[0] == "step 3 of every rank will be recorded (the first step is 0)"


def test_the_agent_hears_all_it_needs() -> None:
    config = ToolConfig(capture=CaptureConfig(record_shapes=True), steps=StepsConfig(source="optimizer"))
    spec = to_agent_spec(config, run_id="r", spool=Path("/tmp/s"))
    assert (spec.run_id, spec.spool, spec.step_source) == ("r", "/tmp/s", "optimizer")
    assert (spec.schedule.skip_first, spec.schedule.warmup, spec.schedule.active) == (10, 2, 6)
    assert (spec.capture.activities, spec.capture.record_shapes, spec.capture.with_stack) == (["auto"], True, False)
    assert spec.capture.activities is not config.capture.activities


def test_every_key_can_be_set() -> None:
    # Hydra sets what stands in config.yaml or in the groups that it names, and refuses the rest.
    written = yaml.safe_load((Path(str(resources.files("rankscope.conf"))) / "config.yaml").read_text(encoding="utf-8"))
    groups = {name for entry in written.pop("defaults") if isinstance(entry, dict) for name in entry}
    known = {part.name: part for part in dataclasses.fields(ToolConfig) if part.name not in groups}
    keys = {
        name: {key.name for key in dataclasses.fields(part.default_factory)}
        for name, part in known.items()
        if dataclasses.is_dataclass(part.default_factory)
    }
    assert {name: set(section) for name, section in written.items()} == keys
