"""The table of a sweep, from runs that have ended."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from rankscope import read_sweep
from rankscope.cli import main
from rankscope.records.report import Action
from rankscope.records.sweep import SweepJob, SweepSetting
from rankscope.sweeps.folder import SweepDir
from rankscope.sweeps.result import predicted, result_of
from rankscope.sweeps.show import SWEEP_WRITERS
from rankscope.sweeps.work import missing

from .conftest import Ended, plan

ADVICE = Action(code="hide_transfers", text="Smaller buckets.", ranks=[0, 1], kind="bound", saves_ms=12.0)
OTHER = Action(code="compile", text="Compile.", ranks=[0, 1], kind="bound", saves_ms=9.0)
STEPS: dict[tuple[int, int], float | None] = {
    (1, 1): 100.0, (2, 1): 90.0, (3, 1): 100.5,
    (3, 2): 100.0, (2, 2): 90.2, (1, 2): 100.2,
    (1, 3): 100.1, (2, 3): 90.1, (3, 3): None,
}  # fmt: skip


def test_the_table(ended: Ended) -> None:
    sweep = ended(plan(25, 1, 100), STEPS, [OTHER, ADVICE])
    result = result_of(sweep, "sweep")
    first, second, third = result.rows
    assert (result.planned, result.ended, result.step_source, result.noise_source) == (9, 9, "recorded", "repeats")
    assert (first.step_ms, first.gain_ms, first.predicted_ms) == (pytest.approx(100.1, abs=0.001), None, None)
    assert second.gain_ms == pytest.approx(10.0, abs=0.01)
    assert second.told
    assert second.gain_low_ms is not None
    assert second.gain_high_ms is not None
    assert 8.5 < second.gain_low_ms < second.gain_ms < second.gain_high_ms < 11.5
    assert (second.predicted_ms, second.predicted_at_most, second.predicted_by) == (12.0, True, "hide_transfers")
    assert (third.told, third.failed, third.runs) == (False, 1, 2)
    assert "setting_003_run_03 ended with exit code 1" in third.notes
    assert result.best is second


def test_it_is_shown_in_every_format_within_80_columns(ended: Ended) -> None:
    sweep = ended(plan(25, 1, 100), STEPS, [ADVICE])
    result = result_of(sweep, "sweep")
    text = SWEEP_WRITERS["terminal"](result)
    assert max(map(len, text.splitlines())) <= 80
    assert "bucket_cap_mb=1 is the fastest: 10.0 ms (10.0 %) a step less" in " ".join(text.split())
    assert "order 1 2 3, 3 2 1, 1 2 3" in text
    assert "at most 12.0" in text
    for row in result.rows:
        row.name = "a_name_that_is_longer_than_any_other=" + "x" * 60
    assert max(map(len, SWEEP_WRITERS["terminal"](result).splitlines())) <= 100  # a name is not cut
    assert json.loads(SWEEP_WRITERS["json"](result))["rows"][1]["told"] is True
    assert "| ---: | ---: |" in SWEEP_WRITERS["markdown"](result)
    result.rows[0].name = "<script>"
    page = SWEEP_WRITERS["html"](result)
    assert "<script" not in page
    assert page.count("<circle") == 8 + 3  # a dot a run, and one a setting


def test_on_a_disturbed_machine_too_few_repeats_tell_nothing(ended: Ended, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rankscope.sweeps.result.disturbed", lambda name, _: [f"{name}: other load disturbed it"])
    result = result_of(ended(plan(25, 1, repeats=1), {(1, 1): 100.0, (2, 1): 50.0}, []), "sweep")
    assert (result.rows[1].gain_ms, result.rows[1].told) == (pytest.approx(50.0), False)
    assert result.best is None
    text = SWEEP_WRITERS["terminal"](result)
    assert "2 of 2 runs may not have been alone (other load disturbed it)" in " ".join(text.split())
    assert "~ (+50.0)" in text
    assert max(map(len, text.splitlines())) <= 80


def test_a_setting_that_never_ran_well_has_no_number(ended: Ended) -> None:
    sweep = ended(plan(25, 1, repeats=1), {(1, 1): 100.0, (2, 1): None}, [])
    result = result_of(sweep, "sweep")
    assert (result.rows[1].step_ms, result.rows[1].failed) == (None, 1)
    text = SWEEP_WRITERS["terminal"](result)
    assert "failed" in text
    assert "No run of another setting has ended well." in text


def test_without_the_first_setting_it_is_reported(ended: Ended) -> None:
    sweep = ended(plan(25, 1, repeats=1), {(1, 1): None, (2, 1): 90.0}, [])
    text = SWEEP_WRITERS["terminal"](result_of(sweep, "sweep"))
    assert "No run of bucket_cap_mb=25" in text


def test_a_prediction_is_that_of_the_one_knob_that_is_turned() -> None:
    planned = plan(25, 1)
    first, second = planned.settings
    first.knobs = {"model.bucket-cap-mb": "3", "seed": "1"}
    for knobs, gain in (
        ({"model.bucket-cap-mb": "3", "seed": "2"}, None),  # no knob of the advice
        ({"model.bucket-cap-mb": "4", "seed": "2"}, 12.0),
        ({"model.bucket-cap-mb": "4", "compile": "True"}, None),  # two pieces of advice, whose gains do not add up
        ({"seed": "1"}, 12.0),  # the argument is left out
    ):
        second.knobs = knobs
        assert _advised(first, second) == gain


def _advised(first: SweepSetting, second: SweepSetting) -> float | None:
    action = predicted(first.knobs, second.knobs, [OTHER, ADVICE])
    return action.saves_ms if action is not None else None


def test_only_what_has_not_ended_is_run(ended: Ended) -> None:
    planned = plan(25, 1, repeats=2)
    sweep = ended(planned, {(1, 1): 100.0, (2, 1): None}, [])
    assert [(s.number, r) for s, r in missing(planned, sweep, failed_again=False)] == [(2, 2), (1, 2)]
    assert [(s.number, r) for s, r in missing(planned, sweep, failed_again=True)] == [(2, 1), (2, 2), (1, 2)]
    again = sweep.run(2, 1)
    assert again.name == "setting_002_run_01_try_2"
    sweep.note(SweepJob(setting=2, repeat=1, folder=again.name, exit_code=0, seconds=1.0))
    assert sweep.ended()[2, 1].exit_code == 0


def test_it_is_read_in_python_and_by_the_command(ended: Ended, capsys: pytest.CaptureFixture[str]) -> None:
    sweep = ended(plan(25, 1, 100), STEPS, [ADVICE])
    found = read_sweep(sweep.path)
    assert found.table.loc["bucket_cap_mb=1", "gain_ms"] == pytest.approx(10.0, abs=0.01)
    assert found.best.name == "bucket_cap_mb=1"
    assert "<svg" in found._repr_html_()
    assert main(["sweep", "--dir", str(sweep.path), "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["planned"] == 9
    assert (sweep.path / "table.html").exists()


def test_a_folder_of_another_sweep_is_left_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    SweepDir(tmp_path / "a").begin(plan(1, 2), shown="a")
    words = ["sweep", "--dir", str(tmp_path / "a"), "-S", "script.lr=1,2", "train.py", "--token", "hunter2"]
    assert main(words) == 2
    assert "holds another sweep: rankscope sweep train.py" in capsys.readouterr().err
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "mine.txt").write_text("x")
    words[2] = str(tmp_path / "b")
    assert main(words) == 3
    assert "not empty" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["--repeat", "0", "train.py"], 2, "below its limit"),
        (["--repeat", "x", "train.py"], 2, "invalid int value"),
        (["--dir", "nowhere"], 3, "holds no sweep"),
        (["-S", "script.lr=1,2"], 2, "required: training_script"),
        (["-S", "schedul=1,2", "train.py"], 2, "did you mean schedule"),
        (["--dry-run", "-S", "script.lr=1,2", "train.py", "--repeat", "7", "--api-key", "hunter2"], 0, ""),
    ],
)
def test_words(
    words: list[str], code: int, said: str, capsys: pytest.CaptureFixture[str], monkeypatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["sweep", *words]) == code
    out, err = capsys.readouterr()
    assert said in err
    if not code:
        assert "2 settings, 3 runs each" in out
        assert "train.py --repeat 7 --api-key '***'" in out
    assert [*tmp_path.iterdir()] == []


def test_encrypted_runs_are_read_where_they_are_opened(ended: Ended, tmp_path: Path) -> None:
    sweep = ended(plan(25, 1), {place: ms for place, ms in STEPS.items() if place[0] < 3}, [])
    plain = tmp_path / "plain"
    sweep.path.rename(plain)
    sweep.path.mkdir()
    (plain / "jobs").rename(sweep.path / "jobs")
    (plain / "sweep.json").rename(sweep.path / "sweep.json")
    assert [row.step_ms for row in result_of(sweep, "sweep").rows] == [None, None]

    @contextmanager
    def opened(run: Path) -> Iterator[Path]:
        yield plain / run.name

    first, second = result_of(sweep, "sweep", opened).rows
    assert (first.step_ms, second.gain_ms) == (pytest.approx(100.1, abs=0.001), pytest.approx(10.0, abs=0.01))


def test_encrypted_runs_without_their_key_say_how(ended: Ended, capsys: pytest.CaptureFixture[str]) -> None:
    sweep = ended(plan(25, 1), {(1, 1): 100.0, (2, 1): 90.0}, [])
    (sweep.path / sweep.ended()[1, 1].folder / "run.json.age").write_bytes(b"sealed")
    assert main(["sweep", "--dir", str(sweep.path)]) == 0
    out, err = capsys.readouterr()
    assert out == ""
    assert f"`rankscope sweep --dir {sweep.path} --identity FILE` shows the table" in err
    assert not (sweep.path / "table.html").exists()
