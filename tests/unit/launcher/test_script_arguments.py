"""The script's own arguments, set by the configuration."""

from __future__ import annotations

import argparse
from typing import Any

import pytest

from rankscope.launcher.run.script_arguments import with_settings


@pytest.mark.parametrize(
    ("words", "settings", "made"),
    [
        ("", {"lr": 0.1}, "--lr=0.1"),
        ("--lr 0.2 data", {"lr": 0.1}, "--lr 0.1 data"),
        ("--lr=0.2 data", {"lr": 0.1}, "--lr=0.1 data"),
        ("--bucket-cap-mb 25", {"bucket_cap_mb": 50}, "--bucket-cap-mb 50"),
        ("-b 8", {"b": 16}, "-b 16"),
        ("--shift -1 data", {"shift": -2}, "--shift -2 data"),
        ("--size 1 2 --lr 1", {"size": [3, 4, 5]}, "--size 3 4 5 --lr 1"),
        ("--compile data", {"compile": False}, "data"),
        ("--compile data", {"compile": True}, "--compile data"),
        ("data", {"compile": True}, "data --compile"),
        ("data", {"compile": False, "lr": None}, "data"),
        ("--compile=true", {"compile": False}, "--compile=false"),
        ("--lr 0.2 data", {"lr": None}, "data"),
        ("data -- rest", {"lr": 1}, "data --lr=1 -- rest"),
        ("-- --lr 3", {"lr": 1}, "--lr=1 -- --lr 3"),
        ("", {"optim": {"lr": 1, "name": "sgd"}}, "--optim.lr=1 --optim.name=sgd"),
        ("model=a optim.lr=1", {"optim": {"lr": 2}, "seed": 3}, "model=a optim.lr=2 seed=3"),
        ("model=a", {"compile": True, "sizes": [1, 2], "model": None}, "compile=true sizes=[1,2]"),
    ],
)
def test_an_argument_is_replaced_where_it_stands_and_added_where_it_is_not(
    words: str, settings: dict[str, Any], made: str
) -> None:
    assert with_settings(words.split(), settings) == made.split()


def test_a_value_of_several_words_or_with_a_dash_stays_one_argument() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--note")
    for value in ("two words", "-1e-3", "--odd", ""):
        assert parser.parse_args(with_settings([], {"note": value})).note == value
    assert parser.parse_args(with_settings(["--note", "old"], {"note": "two words"})).note == "two words"
