"""Make again the pages and tables that come from the code: metrics, findings, configuration, command line, causes.

    python docs/generate.py

tests/unit/test_docs.py fails where a page is not what this makes.
"""

# ruff: noqa: SLF001 - argparse has no other way to list what it was given
from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterator
from pathlib import Path

from rankscope.causes import table as causes
from rankscope.cli.parser import make_parser
from rankscope.cli.parts import config_help
from rankscope.diagnose.rules import table as rules
from rankscope.report.sections import table as sections

sys.path.insert(0, str(Path(__file__).parent))
import python_pages

DOCS = Path(__file__).parent


def causes_of_the_guide() -> str:
    """docs/guide/slow-rank.md, with the rows of its table made again."""
    text = (DOCS / "guide" / "slow-rank.md").read_text(encoding="utf-8")
    return re.sub(
        r"(?m)(?<=\| --- \| --- \| --- \|\n)(^\| `\w+` \|.*\n)+", lambda _: causes.as_markdown(), text, count=1
    )


def command_line() -> str:
    """docs/cli.md: every verb with its flags, as the parser has them."""
    parser = make_parser()
    verbs = next(action for action in parser._actions if isinstance(action, argparse._SubParsersAction))
    said = {choice.dest: choice.help or "" for choice in verbs._choices_actions}
    lines = [
        "# Command line",
        "",
        "This file is made from the parser (`python docs/generate.py`); a test holds both together.",
        "`rankscope VERB --help` says the same.",
        "",
        "```text",
        *(parser.epilog or "").rstrip().splitlines(),
        "```",
    ]
    for name, verb in verbs.choices.items():
        lines += ["", f"## rankscope {name}", "", f"{said.get(name, '')[:1].upper()}{said.get(name, '')[1:]}."]
        if name in ("run", "exec"):
            lines += ["", f"`rankscope {name} --help` lists its flags; all others go to what it launches."]
        rows = list(_flags(verb))
        if rows:
            lines += ["", "| | Meaning |", "| --- | --- |", *rows]
    return "\n".join(lines) + "\n"


def _flags(verb: argparse.ArgumentParser) -> Iterator[str]:
    for action in verb._actions:
        if isinstance(action, argparse._HelpAction) or action.help == argparse.SUPPRESS:
            continue
        value = action.metavar or (
            f"{{{','.join(map(str, action.choices))}}}" if action.choices else action.dest.upper()
        )
        takes = "" if action.nargs == 0 else f" {value}"
        flag = f"{', '.join(action.option_strings)}{takes}" if action.option_strings else str(value)
        words = (action.help or "").replace("%%", "%").replace("|", "\\|")
        yield f"| `{flag.replace('|', chr(92) + '|')}` | {words} |"


PAGES = {
    "metrics.md": sections.as_markdown,
    "findings.md": rules.as_markdown,
    "configuration.md": config_help.as_markdown,
    "cli.md": command_line,
    "python.md": python_pages.as_markdown,
    "guide/slow-rank.md": causes_of_the_guide,
}
"""Page, relative to this folder -> the function that makes its text."""


def main() -> None:
    """Write all pages."""
    for name, make in PAGES.items():
        (DOCS / name).write_text(make(), encoding="utf-8")


if __name__ == "__main__":
    main()
