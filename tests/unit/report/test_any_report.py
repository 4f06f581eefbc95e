"""Text of a trace stays text in every format, whatever it contains."""

from __future__ import annotations

import dataclasses
import importlib.util
import json
import types
import typing
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from rankscope.records.report import ClusterReport
from rankscope.report import WRITERS
from rankscope.report.formats import markdown, terminal

_spec = importlib.util.spec_from_file_location("report_test_writers", Path(__file__).with_name("test_writers.py"))
assert _spec is not None
assert _spec.loader is not None
_writers = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(_writers)
Page = _writers.Page

NASTY = [
    "<script>alert(1)</script>",
    "</script><script>alert(1)</script>",
    "</style><img src=x onerror=alert(1)>",
    "\"><svg/onload=alert(1)> '",
    "{{ 7 * 7 }} {% raw %}",
    "a|b`c`\n\n# heading\r\n---",
    "👩‍🔬🔥 größe 日本語 \u202eevil",
    "\x1b]0;title\x07\x1b[2J\x00",
    "\ud800 lone",
    "<!-- -->]]>&amp;&#x3c;",
    "void k<" + "x" * 10_000 + ">(int)",
    "[bold red]markup[/]",
    "",
]
names = st.one_of(st.sampled_from(NASTY), st.text(max_size=30))
numbers = st.one_of(
    st.sampled_from([0.0, -0.0, 1e-9, 33.333333, 100.0, 1e12, float("nan"), float("inf"), -5.0]),
    st.floats(allow_nan=True, allow_infinity=True, width=32),
)
hta = st.dictionaries(
    names,
    st.recursive(
        st.one_of(st.none(), st.booleans(), st.integers(-9, 9), numbers, names),
        lambda inner: st.one_of(st.lists(inner, max_size=2), st.dictionaries(names, inner, max_size=2)),
        max_leaves=6,
    ),
    max_size=2,
)


def values(hint: Any, name: str = "") -> st.SearchStrategy[Any]:
    """A strategy for any type that occurs in the records."""
    if dataclasses.is_dataclass(hint):
        hints = typing.get_type_hints(hint)
        return st.builds(hint, **{f.name: values(hints[f.name], f.name) for f in dataclasses.fields(hint)})
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Literal:
        return st.sampled_from(arguments)
    if origin in (typing.Union, types.UnionType):
        return st.one_of(*(st.none() if a is type(None) else values(a, name) for a in arguments))
    if origin is list:
        return st.lists(values(arguments[0], name), max_size=3)
    if origin is dict:
        return hta if arguments[1] is Any else st.dictionaries(names, values(arguments[1], name), max_size=3)
    return {str: names, int: st.integers(0, 2000), float: numbers, bool: st.booleans()}[hint]


@st.composite
def any_reports(draw: st.DrawFn) -> ClusterReport:
    """Hides the strategy's own repr, which is megabytes long."""
    report: ClusterReport = draw(_strategy)
    return report


_strategy = values(ClusterReport)
reports = any_reports()
SETTINGS = settings(
    deadline=None,
    derandomize=True,
    # Shrinking a report of hundreds of values takes minutes and teaches little more than the first failure.
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
)


EXAMPLES = pytest.mark.parametrize("examples", [12, pytest.param(300, marks=pytest.mark.long)])


def check(examples: int, holds: Callable[[ClusterReport], None]) -> None:
    """Make so many reports, and fail with the first for which ``holds`` does."""
    settings(SETTINGS, max_examples=examples)(given(reports)(holds))()


def renders(report: ClusterReport) -> None:
    json.loads(WRITERS["json"](report), parse_constant=lambda name: (_ for _ in ()).throw(ValueError(name)))
    assert len(WRITERS["markdown"](report)) <= markdown.MAX_CHARACTERS
    assert len(WRITERS["terminal"](report).splitlines()) <= terminal.MAX_LINES
    for name, render in WRITERS.items():
        text = render(report)
        text.encode("utf-8")
        if name != "json":
            assert "\x1b" not in text
            assert "\x00" not in text


@EXAMPLES
def test_any_report_renders(examples: int) -> None:
    check(examples, renders)


def holds_no_markup_of_a_name(report: ClusterReport) -> None:
    text = WRITERS["html"](report)
    page = Page(text)
    assert not page.faults
    assert not page.open
    tags = [tag for tag, _ in page.tags]
    scripts = [dict(attributes) for tag, attributes in page.tags if tag == "script"]
    assert [script.get("type") for script in scripts].count("application/json") == len(scripts) - 1, "one that runs"
    assert tags.count("style") == 1
    assert not {"img", "iframe", "object", "embed", "base", "form"} & set(tags)
    assert not [a for _, a in page.tags if any(name.startswith("on") or name == "src" for name in a)]
    assert text.count("<!--") == 0
    json.loads(text.partition('<script type="application/json" id="data">')[2].partition("</script>")[0])


@EXAMPLES
def test_no_name_becomes_markup(examples: int) -> None:
    check(examples, holds_no_markup_of_a_name)


def test_nasty_names_are_shown_as_they_are(gpu_straggler: ClusterReport) -> None:
    for name in NASTY[:5]:
        gpu_straggler.verdict.sentence = name
        gpu_straggler.kernels[0].name = name
        gpu_straggler.findings[0].title = name
        page = Page(WRITERS["html"](gpu_straggler))
        assert page.seen().count(name) >= 2
