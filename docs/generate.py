"""Make again the pages and tables that come from the code: metrics, findings, configuration, causes of the guide.

    python docs/generate.py

tests/unit/test_docs.py fails where a page is not what this makes.
"""

from __future__ import annotations

import re
from pathlib import Path

from rankscope.causes import table as causes
from rankscope.cli import config_help
from rankscope.diagnose.rules import table as rules
from rankscope.report.sections import table as sections

DOCS = Path(__file__).parent


def causes_of_the_guide() -> str:
    """docs/guide/slow-rank.md, with the rows of its table made again."""
    text = (DOCS / "guide" / "slow-rank.md").read_text(encoding="utf-8")
    return re.sub(
        r"(?m)(?<=\| --- \| --- \| --- \|\n)(^\| `\w+` \|.*\n)+", lambda _: causes.as_markdown(), text, count=1
    )


PAGES = {
    "metrics.md": sections.as_markdown,
    "findings.md": rules.as_markdown,
    "configuration.md": config_help.as_markdown,
    "guide/slow-rank.md": causes_of_the_guide,
}
"""Page, relative to this folder -> the function that makes its text."""


def main() -> None:
    """Write all pages."""
    for name, make in PAGES.items():
        (DOCS / name).write_text(make(), encoding="utf-8")


if __name__ == "__main__":
    main()
