"""Mutated inputs end with a message, without traceback, hang or more than a gigabyte, and harm no other input.

What an input is made of, and what is done to it, follows from its number alone. One that fails is looked at by
``PYTHONPATH=tests python -m harm.fuzzing.worker FOLDER NUMBER 1``.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from harm.fuzzing.worker import TARGETS

TESTS = Path(__file__).parents[1]


def give(folder: Path, first: int, count: int) -> list[dict[str, Any]]:
    """What became of these inputs. A worker that dies is a fault of its input; the next one goes on behind it."""
    said: list[dict[str, Any]] = []
    end, turn = first + count, 0
    while first < end:
        place = folder / f"worker_{turn}"
        place.mkdir()
        command = [sys.executable, "-m", "harm.fuzzing.worker", str(place), str(first), str(end - first)]
        environment = {**os.environ, "PYTHONPATH": str(TESTS)}
        done = subprocess.run(command, env=environment, cwd=place, capture_output=True, text=True, check=False)
        lines = [json.loads(line) for line in done.stdout.splitlines()]
        begun = [line["begins"] for line in lines if "begins" in line]
        assert begun, done.stderr[-2000:]
        said += [line for line in lines if "begins" not in line]
        if done.returncode != 0 and (not said or said[-1]["number"] != begun[-1]):
            said.append({"number": begun[-1], "fault": f"ended with {done.returncode}: {done.stderr[-2000:]}"})
        first, turn = begun[-1] + 1, turn + 1
    return said


def judge(said: list[dict[str, Any]], count: int) -> None:
    faults = [f"{s['number']}: {s.get('what')}, {s.get('how')}: {s['fault']}" for s in said if s["fault"]]
    assert faults == []
    assert len(said) == count
    assert {s["what"] for s in said} == {target[0] for target in TARGETS}
    codes = Counter((s["operation"], s["code"]) for s in said)
    assert {code for _, code in codes} <= {0, 1, 3, 4, 5}, codes
    # a mutated file costs itself: the other rank's trace is there, so a report is written
    assert codes["analyze", 0] == sum(s["operation"] == "analyze" for s in said)


@pytest.mark.timeout(1200)
def test_a_hundred_mutated_inputs(tmp_path: Path) -> None:
    judge(give(tmp_path, 0, 100), 100)


@pytest.mark.long
@pytest.mark.timeout(7200)
def test_five_thousand_mutated_inputs(tmp_path: Path) -> None:
    said = give(tmp_path, 10_000, 5000)
    seconds, memory = max(s.get("seconds", 0) for s in said), max(s.get("mib", 0) for s in said)
    print(f"5000 inputs: at most {seconds} s of the processor and {memory} MiB for one")
    judge(said, 5000)
