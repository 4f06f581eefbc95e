"""docs/compatibility.md says of doors and signals what the tests and the code have, row by row and column by column."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from doors.doors import DOORS
from rankscope.agent.signals.table import OURS

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "compatibility.md").read_text(encoding="utf-8")
COLUMNS = {
    "armed": "test_armed",
    "window on all ranks, right steps": "test_window_on_all_ranks_with_the_right_steps",
    "late rank named": "test_the_late_rank_is_named",
    "bit-identical": "test_training_is_the_same_to_the_last_bit",
    "exit code of a failing rank": "test_a_failing_rank_ends_the_job_with_the_same_exit_code",
    "SIGTERM": "test_sigterm_ends_it_alike",
}
"""Each column of the table, and the test that it tells of."""
ON_A_GPU = "on a GPU"
"""The last column: all tests of tests/gpu/test_doors.py. It tries those doors whose jobs use devices."""
CELLS = {"yes", "not tried"}


def table(first: str) -> list[list[str]]:
    """Cells of the table whose head begins with ``first``, with the head."""
    begun = PAGE[PAGE.index(f"| {first} |") :].partition("\n\n")[0].splitlines()
    return [[cell.strip() for cell in line.strip("| ").split(" | ")] for line in (begun[0], *begun[2:])]


def test_the_table_of_doors_is_that_of_the_tests() -> None:
    (_, *columns), *rows = table("door")
    assert columns == [*COLUMNS, ON_A_GPU]
    tree = ast.parse((ROOT / "tests" / "doors" / "test_doors.py").read_text(encoding="utf-8"))
    tests = [node.name for node in tree.body if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")]
    assert tests == list(COLUMNS.values())
    assert [row[0] for row in rows] == [door.name for door in DOORS]
    for name, *cells in rows:
        assert len(cells) == len(columns), name
        assert set(cells[:-1]) == {"yes"}, name
        assert cells[-1] in CELLS, name
    tried = {name for name, *cells in rows if cells[-1] == "yes"}
    assert {door.job for door in DOORS if door.name in tried} == _jobs_on_a_gpu()
    for cell in {cell for _, *cells in rows for cell in cells}:
        assert f"*{cell}*: " in PAGE  # what it means stands above the table


def _jobs_on_a_gpu() -> set[str]:
    """Read from the source, since the module imports torch."""
    source = (ROOT / "tests" / "gpu" / "test_doors.py").read_text(encoding="utf-8")
    return ast.literal_eval(re.search(r"^JOBS = (.*)$", source, re.MULTILINE)[1])


def test_the_table_of_signals_is_that_of_the_code() -> None:
    _, *rows = table("name")
    assert rows == [[f"`{signal.name}`", signal.phrase, signal.trust] for signal in OURS]


def test_the_releases_of_torch_are_those_of_the_nightly_workflow() -> None:
    _, *rows = table("torch")
    said = [version for row in rows for version in re.findall(r"\d+\.\d+\.\d+", row[0])]
    workflow = (ROOT / ".github" / "workflows" / "nightly.yml").read_text(encoding="utf-8")
    tried = re.findall(r'"(\d+\.\d+\.\d+)"', re.search(r"torch: (\[\"2\.6.*\])", workflow)[1])
    assert sorted(said) == sorted(tried)
    oldest = re.search(r'"torch>=([\d.]+)"', (ROOT / "pyproject.toml").read_text(encoding="utf-8"))[1]
    assert tried[0] == f"{oldest}.0"
