"""docs/promise.md names an existing test in each row."""

from __future__ import annotations

import ast
import re
from pathlib import Path

TESTS = Path(__file__).parents[1]
PAGE = (TESTS.parent / "docs" / "promise.md").read_text(encoding="utf-8")


def tables() -> list[list[str]]:
    """Cells of each row of the tables whose last column names tests."""
    rows, wanted = [], False
    for line in PAGE.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")] if line.startswith("|") else []
        if not cells:
            wanted = False
        elif cells[-1] == "test":
            wanted = True
        elif wanted and set(cells[-1]) - set("- "):
            rows.append(cells)
    return rows


def known() -> set[str]:
    """Names of all test functions and test files."""
    names = set()
    for path in TESTS.rglob("test_*.py"):
        names.add(path.stem)
        tree = ast.parse(path.read_text(encoding="utf-8"))
        names |= {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
    return names


def test_each_row_names_tests_and_each_of_them_is_there():
    rows, names = tables(), known()
    assert len(rows) > 40
    for cells in rows:
        functions = re.findall(r"`(test_\w+)(?:\[[^`]*\])?`", cells[-1])
        files = re.findall(r"(?:unit|dist|harm)/[\w/]+", cells[-1])
        assert functions or files or cells[-1].startswith("the same"), cells
        assert set(functions) <= names, cells
        assert all((TESTS / f"{file}.py").exists() for file in files), cells
