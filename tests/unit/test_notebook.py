"""The notebook of the guide runs from beginning to end."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
NOTEBOOK = ROOT / "docs" / "guide" / "notebook.ipynb"


def test_the_notebook_runs(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(ROOT)
    names: dict[str, Any] = {}
    cells = json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]
    for cell in cells:
        if cell["cell_type"] == "code":
            assert cell["outputs"] == [], "outputs are made by the reader, with a path of the reader's own"
            exec(compile("".join(cell["source"]), str(NOTEBOOK), "exec"), names)
    said = capsys.readouterr().out
    assert "Rank 1 holds up every step" in said
    assert "matrix products" in said
    counts = names["counts"]
    assert "38 ± 2 ms" in said, "the verdict's price"
    calls = names["calls"]
    assert calls[calls.wait > 0].last_rank.mode().tolist() == [1]
    assert int(counts.loc["aten::mm", 1] - counts.loc["aten::mm", 0]) == 4 * 250, "planted: 250 more in each of 4 steps"
