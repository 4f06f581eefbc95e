"""The split at the script, compared with torchrun's own parser."""

from __future__ import annotations

import contextlib
import io
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.distributed.run import get_args_parser

from rankscope.errors import ConfigError
from rankscope.launcher.run.arguments import HelpAsked, help_text, parse


def torchruns(argv: list[str]) -> dict[str, object] | None:
    """What torchrun makes of a command line; None when it refuses."""
    with contextlib.redirect_stderr(io.StringIO()), contextlib.redirect_stdout(io.StringIO()):
        try:
            return vars(get_args_parser().parse_args(argv))
        except SystemExit:
            return None


ACCEPTED = [
    ["train.py"],
    ["train.py", "--lr", "1"],
    ["--nproc-per-node", "2", "train.py"],
    ["--nproc-per-node=2", "train.py", "--nnodes", "7"],
    ["--nproc_per_node", "gpu", "train.py", "-S", "x=y"],
    ["--nproc-p", "2", "--nn", "1:4", "train.py", "a=b", "+c=d", "~e"],
    ["-r3", "-t", "3", "train.py"],
    ["-m", "package.train", "-m", "other"],
    ["-mr3", "package.train"],
    ["--no-python", "./run.sh", "train.py", "--x"],
    ["--standalone", "--rdzv-conf", "a=b,c=d", "train.py", "-h"],
    ["--stand", "train.py"],
    ["--", "train.py", "--start", "5"],
    ["--nproc-per-node", "2", "--", "train.py", "x"],
    ["train.py", "--", "a"],
    ["train.py", "--", "a", "--", "b"],
    ["train.py", "a", "--", "b"],
    ["train.py", "--", "--"],
    ["train.py", "--help"],
    ["train.py", "--set", "a=b", "--config-dir", "x"],
    ["my script.py", "", "two words"],
    ["-1", "x"],
    ["--rdzv-id", "", "train.py"],
    ["--log-dir", "logs dir", "train.py", "--log-dir"],
    ["--role=trainer", "--master-port", "1234", "--node-rank=0", "train.py", "word0", "word1"],
]


@pytest.mark.parametrize("argv", ACCEPTED, ids=" ".join)
def test_equals_torchrun_where_torchrun_accepts(argv: list[str]) -> None:
    expected = torchruns(argv)
    assert expected is not None
    assert vars(parse(argv).torchrun) == expected


FLAGS = st.sampled_from(
    [
        ["--nproc-per-node", "2"], ["--nproc_per_node=3"], ["--nproc-p", "1"], ["--nnodes", "1:2"], ["--nn=2"],
        ["--standalone"], ["--stand"], ["-m"], ["--module"], ["--no-python"], ["-r3"], ["-r", "0:1,1:2"], ["-t", "3"],
        ["--tee=1"], ["--rdzv-id", "x y"], ["--rdzv-e=h:1"], ["--max-restarts", "2"], ["--max", "x"], ["--start", "5"],
        ["--start-method", "fork"], ["--master_port=5"], ["--bogus"], ["--bogus", "1"], ["--role", "-x"], ["--"],
        ["--run-path"], ["--local-ranks-filter=0"], ["-mr1"], ["-mt"], ["--s"], ["-x"],
    ]
)  # fmt: skip
WORDS = st.one_of(
    st.sampled_from(
        ["--start", "--s", "-S", "--", "-r", "a=b", "+a=b", "-h", "--nnodes", "5", "-5", "", "a b", "-", "--n=1"]
    ),
    st.text(alphabet="-ab =.", max_size=6),
)


@settings(deadline=None, max_examples=300)
@given(
    flags=st.lists(FLAGS, max_size=4),
    script=st.sampled_from(["train.py", "a.b", "t -x"]),
    rest=st.lists(WORDS, max_size=5),
)
def test_equals_torchrun_for_any_command_line_it_accepts(flags: list[list[str]], script: str, rest: list[str]) -> None:
    argv = [*(word for flag in flags for word in flag), script, *rest]
    expected = torchruns(argv)
    if expected is not None:
        assert vars(parse(argv).torchrun) == expected


@settings(deadline=None, max_examples=200)
@given(rest=st.lists(WORDS, max_size=6))
def test_never_touches_or_refuses_what_the_script_gets(rest: list[str]) -> None:
    found = parse(["--nproc-per-node", "2", "train.py", "first", *rest])
    assert found.torchrun.training_script_args == ["first", *rest]
    assert (found.torchrun.training_script, found.overrides, found.config_dirs) == ("train.py", [], [])


@pytest.mark.parametrize("rest", [["--start", "5"], ["--s"], ["--log", "x"], ["--m=3"], ["--config", "x", "-S", "a=b"]])
def test_gives_the_script_what_torchrun_would_refuse(rest: list[str]) -> None:
    assert parse(["train.py", *rest]).torchrun.training_script_args == rest


def test_takes_ours_from_before_the_script_only() -> None:
    argv = ["-S", "a=1", "--nproc-p", "2", "-Sb=2", "--set=c=3", "--config-dir=one", "--config-dir", "two", "train.py"]
    found = parse([*argv, "-S", "d=4", "--config-dir", "three"])
    assert found.overrides == ["a=1", "b=2", "c=3"]
    assert found.config_dirs == [Path("one"), Path("two")]
    assert vars(found.torchrun) == torchruns(["--nproc-p", "2", "train.py", "-S", "d=4", "--config-dir", "three"])


def test_takes_an_override_that_looks_like_a_flag_with_the_equals_sign() -> None:
    assert parse(["--set=~schedule", "-S=+experiment=mine", "train.py"]).overrides == ["~schedule", "+experiment=mine"]


def test_reads_pet_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"NPROC_PER_NODE": "4", "STANDALONE": "1", "MAX_RESTARTS": "3", "NO_PYTHON": "1"}.items():
        monkeypatch.setenv(f"PET_{name}", value)
    found = parse(["train.py", "--start", "5"]).torchrun
    assert (found.nproc_per_node, found.standalone, found.max_restarts, found.no_python) == ("4", True, 3, True)
    assert vars(parse(["train.py"]).torchrun) == torchruns(["train.py"])


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        ([], "script to launch is missing"),
        (["--nproc-per-node", "2"], "training_script"),
        (["--nproc-per-node"], "expected one argument"),
        (["--max-restarts", "x", "train.py"], "invalid int value"),
        (["--bogus=1", "train.py"], "unrecognized arguments: --bogus=1"),
        (["--s", "train.py"], "ambiguous option"),
        (["-S"], "expected one argument"),
    ],
)
def test_refuses_in_torchruns_words(argv: list[str], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        parse(argv)


def test_shows_help_only_when_asked_before_the_script() -> None:
    with pytest.raises(HelpAsked):
        parse(["--standalone", "-h", "train.py"])
    assert parse(["train.py", "-h"]).torchrun.training_script_args == ["-h"]
    text = help_text()
    assert "--config-dir" in text
    assert "--max-restarts" not in text
    assert len(text.splitlines()) < 45, "one screen"
    with pytest.raises(HelpAsked) as asked:
        parse(["--standalone", "--help-torchrun", "train.py"])
    assert asked.value.torchrun
    assert "--max-restarts" in help_text(torchrun=True)
