"""The public surface as a text that a reviewer reads: names, signatures, members, columns of tables.

After a wanted change::

    GOLDEN=write python -m pytest tests/unit/test_surface.py
"""

from __future__ import annotations

import dataclasses
import inspect
import os
import typing
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Any

import rankscope
from rankscope.records.report import ClusterReport
from rankscope.report.notebook import TABLES, WhatIf
from rankscope.report.plots import Plots

GOLDEN = Path(__file__).parents[1] / "golden" / "surface.txt"


def surface() -> Iterator[str]:
    for name in sorted(rankscope.__all__):
        value = getattr(rankscope, name)
        if inspect.isfunction(value):
            yield f"{name}{signature(value)}"
        elif inspect.isclass(value):
            yield from members(name, value)
        else:
            yield name
    yield from members("report.plot", Plots)
    yield from members("report.what_if(...)", WhatIf)
    yield from ("", "errors")
    errors = [getattr(rankscope.errors, name) for name in rankscope.errors.__all__]
    yield from sorted(
        f"  {error.__name__} < {error.__base__.__name__}, exit code {error.exit_code}" for error in errors
    )
    yield from ("", "columns of report.table(name)")
    hints = typing.get_type_hints(ClusterReport)
    for table in sorted(TABLES):
        (record,) = typing.get_args(hints[table])
        yield f"  {table}: {', '.join(field.name for field in dataclasses.fields(record))}"


def members(name: str, kind: type) -> Iterator[str]:
    yield f"{name}{signature(kind)}"
    fields = [field.name for field in dataclasses.fields(kind)] if dataclasses.is_dataclass(kind) else []
    for member, value in sorted({**dict.fromkeys(fields), **vars(kind)}.items()):
        if member.startswith("_"):
            continue
        if inspect.isfunction(value):
            yield f"  .{member}{signature(value)}"
        elif isinstance(value, (property, cached_property)) or member in fields or inspect.isdatadescriptor(value):
            yield f"  .{member}"


def signature(function: Any) -> str:
    text = str(inspect.signature(function)).replace("(self, ", "(").replace("(self)", "()")
    return text.replace("'", "").replace('"', "")  # which versions of Python write differently


def test_the_public_surface_is_as_it_was() -> None:
    found = "\n".join(surface()) + "\n"
    if os.environ.get("GOLDEN") == "write":
        GOLDEN.write_text(found, encoding="utf-8")
    assert found == GOLDEN.read_text(encoding="utf-8")
    assert (Path(rankscope.__file__).parent / "py.typed").exists()


def test_every_public_name_says_what_it_is() -> None:
    for name in set(rankscope.__all__) - {"__version__"}:
        assert len(inspect.getdoc(getattr(rankscope, name)) or "") > 40, name
