"""The first screen alone shows the rank, the cause, the first action, and its gain.

What is right comes from what was planted in each recorded job (tests/data/traces/labels.json).
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

import pytest

from rankscope.analysis.pipeline import analyze
from rankscope.report.formats import html, terminal
from rankscope.trace.files.load import load_traces
from support.first_screen import first_screen

pytestmark = pytest.mark.data

TRACES = Path(__file__).parents[2] / "data" / "traces"


class Truth(NamedTuple):
    """What a reader should come away with."""

    rank: int | None
    cause: str
    first: str
    gain_ms: tuple[float, float]
    """Least and most, error taken off and added."""


SIX = {
    "ddp_dataloader_stall": Truth(1, "It waits for input", "Raise num_workers", (60.0, 60.0)),
    "gloo_ddp_input": Truth(1, "It waits for input", "Raise num_workers", (60.0, 60.0)),
    "gloo_fsdp2_pause": Truth(1, "Its Python stands still", "Look for garbage collection", (50.0, 50.0)),
    "graph_host_pause": Truth(1, "Its Python stands still", "Look for garbage collection", (30.0, 30.0)),
    "ddp_slow_gpu": Truth(1, "It runs 250 more aten::mm a step", "Take the 250 extra calls of aten::mm", (30.0, 45.0)),
    "fsdp2_gpu_bound": Truth(None, "The devices compute 97 %", "torch.compile fuses", (0.0, 24.0)),
}
"""Of the last two nothing says what it costs: extra products, of which 44 ms a step run on the rank, and all time of
element-wise kernels, 24 ms."""
NUMBER = r"([\d.,]+)(?:\s±\s([\d.,]+))?\s?ms a step"


@pytest.mark.parametrize("name", SIX)
def test_rank_cause_first_action_and_gain(name: str) -> None:
    truth = SIX[name]
    report = analyze(load_traces([TRACES / name], cache=False), hta=False)
    page = first_screen(html.render(report)).replace("\N{NO-BREAK SPACE}", " ")
    shown = " ".join(terminal.render(report, 80).partition("\n\n")[0].split())
    for text in (page, shown):
        named = re.search(r"Rank (\d+) holds up every step", text)
        assert (int(named[1]) if named else None) == truth.rank
        assert named or "No rank is to blame" in text
        assert truth.cause in text
    first = page.partition("Next\n- ")[2].partition("\n")[0]
    assert first.startswith(truth.first)
    assert shown.partition("Next ")[2].startswith(truth.first)
    table = page.partition("What to do, and what it would gain")[2].partition("\n")[2]
    assert table.startswith(truth.first), "the table of what to do begins with the same"
    said = re.search(NUMBER, first)
    assert said
    gain, error = float(said[1]), float(said[2] or 0.0)
    assert gain + error >= truth.gain_ms[0]
    assert gain - error <= truth.gain_ms[1]
    assert ("at most" in first) == (truth.rank is None), "a bound is called one"
