"""Settings of a sweep: Hydra's grammar, all combinations, and a balanced order."""

from __future__ import annotations

from pathlib import Path

import pytest

from rankscope.cli.parts.sweep_settings import settings_of
from rankscope.compose import alternatives
from rankscope.errors import ConfigError
from rankscope.records.sweep import SweepPlan
from rankscope.sweeps.folder import SweepDir
from rankscope.sweeps.order import order_in_words, order_of

from .conftest import plan


def test_the_grammar_of_hydra(tmp_path: Path) -> None:
    (tmp_path / "experiment").mkdir()
    (tmp_path / "experiment" / "mine.yaml").write_text("# @package _global_\nscript:\n  lr: 3\n")
    words = [
        "script.b=25,50",
        "script.lr=range(1,4)",
        "script.c=choice(true,false)",
        "script.p='a,b'",
        "script.s=[1,2],[3]",
        "+experiment=glob([m*,one*])",
        "schedule.active=4",
    ]
    assert alternatives(words, [tmp_path]) == [
        ["script.b=25", "script.b=50"],
        ["script.lr=1", "script.lr=2", "script.lr=3"],
        ["script.c=True", "script.c=False"],
        ["script.p='a,b'"],
        ["script.s=[1,2]", "script.s=[3]"],
        ["+experiment=mine", "+experiment=one_bucket"],
        ["schedule.active=4"],
    ]


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("script.lr=interval(0,1)", r"no end of values; use range"),
        ("script.lr=glob(*)", r"script.lr is none; use a,b or range"),
        ("script.lr=range(3,3)", r"stands for no value"),
        ("script.lr", "Error parsing override"),
        ("schedule.actve=1,2", "did you mean schedule.active"),
        ("schedule.active=1,0", "schedule.active=0 is below its limit of 1"),
        ("run.dir=a,b", "set by the sweep"),
    ],
)
def test_what_cannot_be_run_is_refused_before_anything_is(word: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        settings_of([word])


def test_all_combinations_the_last_one_fastest() -> None:
    found = settings_of(["script.b=1,2", "schedule=short", "+experiment=one_bucket,larger_batch"])
    assert [own.name for own in found] == ["b=1 one_bucket", "b=1 larger_batch", "b=2 one_bucket", "b=2 larger_batch"]
    assert found[3].overrides == ["script.b=2", "+experiment=larger_batch"]
    assert found[3].knobs == {"batch": "16", "b": "2"}
    assert [own.number for own in found] == [1, 2, 3, 4]
    assert [own.name for own in settings_of(["schedule=short"])] == ["as given"]


def test_each_round_is_the_other_way_round() -> None:
    assert order_of(3, 2) == [(1, 1), (2, 1), (3, 1), (3, 2), (2, 2), (1, 2)]
    assert order_in_words(plan(25, 1, repeats=3)) == "1 2, 2 1, 1 2"
    # a machine that becomes slower by the same with each run: over two rounds no setting has more of it
    late = dict.fromkeys((1, 2, 3), 0)
    for place, (setting, _) in enumerate(order_of(3, 4)):
        late[setting] += place
    assert len({*late.values()}) == 1


def test_secrets_are_kept_nowhere(tmp_path: Path) -> None:
    settings = settings_of(["env.HF_TOKEN=hunter2", "script.api-key=abc12,def34", "script.lr=1"])
    assert [own.overrides for own in settings] == [["script.api-key=abc12"], ["script.api-key=def34"]]  # to run with
    sweep = SweepDir(tmp_path / "sweep")
    for _ in range(2):  # and it is the same sweep when it goes on
        sweep.begin(SweepPlan(words=["train.py"], settings=settings, repeats=1), shown="sweep")
    text = (tmp_path / "sweep" / "sweep.json").read_text()
    assert not [secret for secret in ("hunter2", "abc12", "def34") if secret in text]
    assert sweep.plan().settings[0].knobs["lr"] == "1"
