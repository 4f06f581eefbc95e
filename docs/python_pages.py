"""docs/python.md: every public function and class with its signature and docstring."""

from __future__ import annotations

import dataclasses
import inspect
import re
from collections.abc import Iterator
from functools import cached_property
from typing import Any

import rankscope
from rankscope.report.notebook import WhatIf, WhatIfs

__all__ = ["as_markdown"]

_PART = re.compile(r"^(Args|Returns|Raises|Attributes):$")
_ITEM = re.compile(r"^    (\S[^:]*): (.*)$")
_MARKUP = re.compile(r":(?:func|class|meth|data|mod|attr):`~?([^`]+)`|``([^`]+)``")


def as_markdown() -> str:
    """Return docs/python.md."""
    lines = [
        "# Python reference",
        "",
        "This file is made from the docstrings (`python docs/generate.py`); a test holds both together.",
        "[What is public](api.md) has examples, and says what is promised.",
    ]
    functions = [n for n in rankscope.__all__ if inspect.isfunction(getattr(rankscope, n))]
    classes = [n for n in rankscope.__all__ if inspect.isclass(getattr(rankscope, n))]
    for name in functions:
        lines += _described(f"rankscope.{name}", getattr(rankscope, name), "##")
    for name in classes:
        lines += _of_class(f"rankscope.{name}", getattr(rankscope, name))
    lines += ["", "## Questions: report.what_if", "", *_text(inspect.getdoc(WhatIfs) or "")]
    lines += _described("report.what_if", WhatIfs.__call__, "###")
    lines += [*_of_class("WhatIf", WhatIf, "###"), "", "Its fields: `saves_ms`, `step_then_ms`, `by_step_ms`."]
    return "\n".join(lines).rstrip() + "\n"


def _of_class(name: str, kind: type, level: str = "##") -> Iterator[str]:
    made = kind.__name__ == "region" or dataclasses.is_dataclass(kind)  # by the user, with arguments of its own
    yield from (
        _described(name, kind, level) if made else ["", f"{level} {name}", "", *_text(inspect.getdoc(kind) or "")]
    )
    for attribute, value in vars(kind).items():
        if attribute.startswith("_") or attribute == "what_if":  # which has a part of its own
            continue
        if inspect.isfunction(value):
            yield from _described(f"{name.rpartition('.')[2].lower()}.{attribute}", value, level + "#")
        elif isinstance(value, (property, cached_property)):
            shown = f"{name.rpartition('.')[2].lower()}.{attribute}"
            yield from ["", f"{level}# {shown}", "", *_text(inspect.getdoc(value) or "")]


def _described(name: str, function: Any, level: str) -> list[str]:
    signature = inspect.signature(function)
    parameters = [p for p in signature.parameters.values() if p.name != "self"]
    shown = ", ".join(_parameters(parameters))
    returns = "" if signature.return_annotation in (inspect.Signature.empty, "None") else signature.return_annotation
    arrow = f" -> {returns}" if returns else ""
    arrow = "" if inspect.isclass(function) else arrow
    return [
        "",
        f"{level} {name}",
        "",
        "```python",
        f"{name}({shown}){arrow}",
        "```",
        "",
        *_text(inspect.getdoc(function) or ""),
    ]


def _parameters(parameters: list[inspect.Parameter]) -> Iterator[str]:
    starred = False
    for parameter in parameters:
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY and not starred:
            starred = True
            yield "*"
        typed = "" if parameter.annotation is inspect.Parameter.empty else f": {parameter.annotation}"
        default = "" if parameter.default is inspect.Parameter.empty else f" = {parameter.default!r}"
        yield f"{parameter.name}{typed}{default}"


def _text(docstring: str) -> list[str]:
    """Google's form of a docstring as Markdown: its parts as lists."""
    lines: list[str] = []
    inside = False
    for line in docstring.splitlines():
        part = _PART.match(line)
        item = _ITEM.match(line) if inside else None
        if part:
            inside = True
            lines += [f"**{part[1]}**", ""]
        elif item:
            lines.append(f"- `{item[1]}`: {item[2]}")
        elif inside and line.startswith("    "):
            lines.append(f"  {line.strip()}" if lines[-1:] != [""] else line.strip())
        else:
            inside = inside and not line.strip()
            lines.append(line)
    return [_MARKUP.sub(lambda m: f"`{m[1] or m[2]}`", line).rstrip() for line in lines]
