"""Fields, causes and files that the guide names exist."""

from __future__ import annotations

import dataclasses
import re
import typing
from pathlib import Path

import pytest

from rankscope.causes.table import OURS
from rankscope.cli.parts.config_help import keys
from rankscope.records.manifest import RunManifest
from rankscope.records.report import ClusterReport
from rankscope.timeline.selection import CATEGORIES

GUIDE = Path(__file__).parents[3] / "docs" / "guide"
PAGES = sorted(GUIDE.glob("*.md"))


def fields(record: type, prefix: str = "") -> set[str]:
    """Paths like ``ranks[].idle_pct`` and ``verdict.cause``, and the bare names at their ends."""
    found: set[str] = set()
    for name, hint in typing.get_type_hints(record).items():
        path = f"{prefix}{name}"
        found |= {path, name}
        for inner in (hint, *typing.get_args(hint)):
            if isinstance(inner, type) and dataclasses.is_dataclass(inner):
                many = typing.get_origin(hint) is list
                found |= {f"{path}[]"} if many else set()
                found |= fields(inner, f"{path}{'[]' if many else ''}.")
    return found


RECORDS = (
    *("run", "ranks", "idle", "groups", "modules", "queues", "memory", "kernels", "verdict", "clock", "collectives"),
    *("windows", "lives"),
)
KNOWN = fields(ClusterReport) | fields(RunManifest) | {key.name for key in keys()}


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.stem)
def test_fields_exist(page: Path) -> None:
    text = re.sub(r"```.*?```", "", page.read_text(), flags=re.S)
    said = set(re.findall(rf"`((?:{'|'.join(RECORDS)})[\[.][\w\[\].]*)`", text))
    said |= set(re.findall(r"`(\w+_(?:ms|pct|step|us|gb_s))`", text))
    assert said <= KNOWN, said - KNOWN


def test_every_picture_is_made_and_shown() -> None:
    shown = {name for page in PAGES for name in re.findall(r"pictures/([\w-]+)\.png", page.read_text())}
    assert shown == {path.stem for path in (GUIDE / "pictures").glob("*.png")}
    made = re.findall(r'^    "([\w-]+)": Picture\(', (GUIDE.parent / "pictures.py").read_text(), re.M)
    assert set(made) == shown


def test_every_cause_is_explained() -> None:
    rows = re.findall(r"^\| `(\w+)` \|", (GUIDE / "slow-rank.md").read_text(), re.M)
    assert sorted(rows) == sorted(cause.name for cause in OURS)


def test_categories_exist() -> None:
    for names in re.findall(r"--categories (\S+)", (GUIDE / "timeline.md").read_text()):
        assert set(names.split(",")) <= set(CATEGORIES)
