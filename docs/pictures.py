"""Make the pictures of the guide: ``make docs-pictures``. Needs Chromium with chromedriver, and no network.

Every picture is a part of the report of a recorded run under tests/data, as it comes out of ``rankscope analyze``.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
PICTURES = ROOT / "docs" / "guide" / "pictures"
RUNS = ROOT / "tests" / "data"

sys.path.insert(0, str(ROOT / "tests"))

from rankscope.analysis.pipeline import analyze  # noqa: E402
from rankscope.records.codec import from_json  # noqa: E402
from rankscope.records.manifest import RunManifest  # noqa: E402
from rankscope.report import write_report  # noqa: E402
from rankscope.trace.files.load import load_traces  # noqa: E402
from support.browser import Browser, browsing  # noqa: E402 - after the path to it


class Picture(NamedTuple):
    """A part of the report of a run: from the first to the last element that ``selector`` finds."""

    run: str
    selector: str
    scheme: str = "light"
    before: str = ""
    """JavaScript to run first, to choose what is shown."""


ALL = {
    "verdict": Picture("runs/ddp_input", "#verdict"),
    "verdict-dark": Picture("runs/ddp_input", "#verdict", "dark"),
    "slow-rank": Picture("runs/ddp_input", "#time .lead, #time .legend, #time .bars, #steps h2, #heat"),
    "steps": Picture("runs/ddp_input", "#perstep"),
    "gpu-idle": Picture("runs/fsdp2_none", "#time .legend, #time .bars"),
    "queue": Picture("runs/fsdp2_none", "#queues .tablebox, #gains .tablebox", before="swap('#gains', '#queues')"),
    "groups": Picture("runs/fsdp2_none", "#groups .tablebox"),
    "modules": Picture("runs/fsdp2_none", "#modules .tablebox", before="keep('#modules', 6)"),
    "trust": Picture("runs/ddp_input", "#trust .trust"),
}
_HELP = """
document.querySelectorAll("main > section").forEach((part) => { part.style.contentVisibility = "visible" });
const keep = (section, count) => {
  const rows = [...document.querySelectorAll(`${section} tbody tr`)];
  rows.slice(count).forEach((row) => row.remove());
  document.querySelector(`${section} .count`).textContent = `${count} of ${rows.length} rows`;
};
const swap = (first, second) => document.querySelector(first).before(document.querySelector(second));
"""


def main() -> int:
    """Write all pictures; they change only where the report did."""
    PICTURES.mkdir(exist_ok=True)
    with browsing() as browser, tempfile.TemporaryDirectory() as scratch:
        browser.resize(1160, 900)
        pages = {run: report(RUNS / run, Path(scratch) / run) for run in {picture.run for picture in ALL.values()}}
        for name, picture in ALL.items():
            (PICTURES / f"{name}.png").write_bytes(taken(browser, pages[picture.run], picture))
    return 0


def report(run: Path, folder: Path) -> Path:
    """The page of a run."""
    manifest = from_json(RunManifest, (run / "run.json").read_bytes())
    return write_report(analyze(load_traces([run], cache=False), manifest), folder)["html"]


def taken(browser: Browser, page: Path, picture: Picture) -> bytes:
    """One picture as PNG."""
    browser.prefer(picture.scheme)
    browser.open(page)
    browser.run(f"{_HELP};{picture.before}")
    found: int = browser.run(f"return document.querySelectorAll({json.dumps(picture.selector)}).length")
    if not found:
        raise SystemExit(f"{page.parent.name} has nothing at {picture.selector}")
    return browser.picture(picture.selector)


if __name__ == "__main__":
    sys.exit(main())
