"""Composition of the configuration by Hydra's Compose API."""

from __future__ import annotations

import contextlib
import logging
import re
from pathlib import Path

import pytest
from hydra.core.global_hydra import GlobalHydra

from rankscope.compose import compose
from rankscope.config import ToolConfig
from rankscope.errors import ConfigError


@pytest.fixture
def theirs(tmp_path: Path) -> Path:
    """A user's own folder, with a name that needs quoting."""
    folder = tmp_path / "their conf, it's"
    (folder / "experiment").mkdir(parents=True)
    (folder / "schedule").mkdir()
    (folder / "experiment" / "mine.yaml").write_text(
        "# @package _global_\ndefaults:\n  - override /schedule: tiny\n  - override /capture: shapes\n"
        "run:\n  dir: /somewhere\n"
    )
    (folder / "schedule" / "tiny.yaml").write_text("skip_first: 0\nwait: 1\nwarmup: 1\nactive: 2\nrepeat: 1\n")
    return folder


def test_the_yaml_files_say_what_the_schema_says() -> None:
    assert compose([]).config == ToolConfig()


@pytest.mark.parametrize("schedule", ["default", "short", "long"])
@pytest.mark.parametrize("capture", ["light", "shapes", "full"])
def test_every_file_of_every_group_composes(schedule: str, capture: str) -> None:
    compose([f"schedule={schedule}", f"capture={capture}"])


def test_groups_keys_and_lists_in_the_order_given() -> None:
    composed = compose(["schedule=short", "schedule.active=4", "capture.activities=[cpu,cuda]", "run.dir='/a=b c'"])
    assert composed.config.schedule.windows() == [(3, 6)]
    assert composed.config.capture.activities == ["cpu", "cuda"]
    assert composed.plain["run"] == {"dir": "/a=b c"}
    assert "active: 4" in composed.yaml


def test_a_users_own_experiment_and_group_file(theirs: Path) -> None:
    config = compose(["+experiment=mine"], [theirs]).config
    assert (config.schedule.windows(), config.capture.record_shapes, config.run.dir) == ([(2, 3)], True, "/somewhere")
    assert compose(["schedule=tiny", "schedule.active=3"], [theirs]).config.schedule.active == 3


def test_names_below_script_and_env_are_the_users() -> None:
    config = compose(["script.bucket-cap-mb=25", "script.optim.lr=1e-3", "env.OMP_NUM_THREADS=2", "env.A=null"]).config
    assert config.script == {"bucket-cap-mb": 25, "optim": {"lr": 0.001}}
    assert config.env == {"OMP_NUM_THREADS": "2", "A": None}
    with pytest.raises(ConfigError, match=r"script\.bucket-cap-mb is for `rankscope run`"):
        config.refuse_experiment()
    compose([]).config.refuse_experiment()


@pytest.mark.parametrize("experiment", ["small_buckets", "one_bucket", "larger_batch"])
def test_every_example_of_an_experiment_turns_an_argument_that_the_demo_has(experiment: str) -> None:
    from rankscope.demo import JOBS

    (name,) = compose([f"+experiment={experiment}", "schedule=short"]).config.script
    assert f'"--{name}"' in "".join(path.read_text() for path in (JOBS / "train.py", JOBS / "plant.py"))


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("schedule.actve=3", "no configuration key 'schedule.actve'; did you mean schedule.active"),
        ("active=3", "did you mean schedule.active"),
        ("+schedule.actve=3", "no configuration key 'schedule.actve'"),
        ("schedul=short", "no configuration key 'schedul'; did you mean schedule"),
        ("schedule=shrt", "the group schedule has no 'shrt'; did you mean short"),
        ("schedule=zzz", "known are default, long, short"),
        ("+experiment=mine", "the group experiment has no 'mine'"),
        ("schedule.active=many", "schedule.active: 'many' is not a whole number"),
        ("schedule.active=null", "schedule.active"),
        ("schedule.active=1,2", "Ambiguous value"),
        ("schedule.active", "-S 'schedule.active' sets nothing; write a key and its value"),
        ("schedule.active = 3", "write a key and its value without spaces"),
        ("experiment=one_bucket", r"no file of the group experiment is used by default; write \+experiment=NAME"),
        ("a=1", "no configuration key 'a'; `rankscope config --explain` lists all keys"),
        ("schedule.warmup=0", "schedule.warmup=0 is below its limit of 1"),
        ("run=3", "RunConfig"),
    ],
)
def test_a_mistake_is_a_config_error_that_names_what_was_meant(override: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        compose([override])


def test_a_mistake_in_a_users_group_names_their_files(theirs: Path) -> None:
    with pytest.raises(ConfigError, match=re.escape("the group experiment has no 'min'; did you mean mine?")):
        compose(["+experiment=min"], [theirs])


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("schedule:\n  active: 3\n", "begin it with the line # @package _global_"),
        ("# @package _global_\nschedule: [\n", r"cannot be read: .*experiment/slow\.yaml"),
        ("# @package _global_\nschedule:\n  activ: 3\n", r"no configuration key 'schedule\.activ'"),
    ],
)
def test_a_mistake_in_a_users_file(text: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "experiment").mkdir()
    (tmp_path / "experiment" / "slow.yaml").write_text(text)
    with pytest.raises(ConfigError, match=said):
        compose(["+experiment=slow"], [tmp_path])


def test_a_config_dir_that_does_not_exist(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"--config-dir .* is not a folder"):
        compose([], [tmp_path / "none"])
    with pytest.raises(ConfigError, match="not available"):
        compose(["hydra.searchpath=['file:///does/not/exist']"])


@pytest.mark.parametrize("overrides", [["schedule=short"], ["schedule=shrt"]])
def test_leaves_no_trace(overrides: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    root = logging.getLogger()
    before = (list(root.handlers), root.level)
    with contextlib.suppress(ConfigError):
        compose(overrides)
    assert not GlobalHydra.instance().is_initialized()
    assert (list(root.handlers), root.level) == before
    assert list(tmp_path.iterdir()) == []


def test_without_a_current_folder_the_settings_are_not_to_blame(tmp_path, monkeypatch):
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    with pytest.raises(OSError, match=r"current folder: No such file"):
        compose([])
