"""One self-contained page: no request leaves it, and nothing in a trace can become markup or script."""

from __future__ import annotations

import base64
import functools
import hashlib
import json
import re
from importlib import resources
from typing import Any, NamedTuple

import jinja2
from markupsafe import Markup

from rankscope.model import ClusterReport, Finding, ReportError
from rankscope.report import breakdown, heat, tables, words
from rankscope.report.metrics import METRICS, hover
from rankscope.report.tidy import tidy

__all__ = ["render"]

_TEMPLATES = "templates"
_SIGNS = {
    "straggler": "▲",
    "balanced": "✓",
    "host_bound": "◆",
    "comm_bound": "⇄",
    "pipeline": "≡",
    "insufficient_data": "?",
}
_LEVELS = {"low": 1, "medium": 2, "high": 3}
_MAX_LINKS = 8
"""More ranks than this are written as ranges, not as links."""


class _Bar(NamedTuple):
    rank: int
    label: str
    named: bool
    segments: list[breakdown.Segment]
    spoken: str
    empty: str


class _Card(NamedTuple):
    anchor: str
    finding: Finding
    cost: str
    gain: str
    level: int


def render(report: ClusterReport, *, timeline: str | None = None) -> str:
    """Return the page. ``timeline`` is the name of the merged timeline beside it, where there is one."""
    report = tidy(report)
    style, script = _asset("report.css"), _asset("report.js")
    page = _environment().get_template("report.html.j2").render(
        **_context(report),
        style=Markup(style),  # noqa: S704 - ours, from the package
        script=Markup(script),  # noqa: S704 - ours, from the package
        policy=_policy(style, script),
        timeline=timeline,
        data=_embed({"heat": heat.heatmap(report)}),
    )  # fmt: skip
    return words.clean(page)


def _context(report: ClusterReport) -> dict[str, Any]:
    accelerator = words.has_accelerator(report)
    verdict = report.verdict
    bars = _bars(report)
    used = {segment.key for bar in bars for segment in bar.segments}
    return {
        "report": report,
        "run": report.run,
        "verdict": verdict,
        "error": words.plus_minus(verdict.cost_ms_per_step, verdict.cost_error_ms, "").partition(" ± ")[2],
        "kind": words.KIND_LABELS.get(verdict.kind, "Verdict"),
        "kind_class": verdict.kind if verdict.kind in words.KIND_LABELS else "insufficient_data",
        "sign": _SIGNS.get(verdict.kind, "?"),
        "level": _LEVELS.get(verdict.confidence, 1),
        "sentence": words.keep_units(words.sentence(verdict)),
        "share": words.share_of_step(verdict.cost_ms_per_step, verdict.step_ms),
        "serious": bool(report.errors) or any(rank.status != "ok" for rank in report.ranks),
        "warnings": words.warnings(report),
        "cards": _cards(report),
        "bars": bars,
        "legend": [(key, label, hover(metric)) for key, (label, metric) in breakdown.LEGEND.items() if key in used],
        "heat": bool(report.steps),
        "tables": {
            "ranks": tables.ranks(report),
            "groups": tables.groups(report),
            "kernels": tables.kernels(report),
            "offsets": tables.clock_offsets(report),
            "sources": tables.sources(report),
        },
        "hta": tables.hta(report),
        "metrics": METRICS,
        "hover": hover,
        "device": "device" if accelerator else "main thread",
        "kernel": "Kernel" if accelerator else "Operator",
        "many": len(bars) > words.FEW_RANKS,
        "max_links": _MAX_LINKS,
    }


def _bars(report: ClusterReport) -> list[_Bar]:
    idle = {row.rank: row for row in report.idle}
    named = set(report.verdict.ranks)
    bars = []
    for rank in words.in_order(report):
        parts = breakdown.segments(rank, idle.get(rank.rank))
        spoken = ", ".join(f"{part.label} {words.pct(part.pct)}" for part in parts)
        empty = f"{rank.status}: {words.one_line(rank.reason, 160)}" if rank.reason else rank.status
        label = words.ms(rank.step_ms.get("median"))
        bars.append(_Bar(rank.rank, label, rank.rank in named, parts, spoken, "" if parts else empty))
    return bars


def _cards(report: ClusterReport) -> list[_Card]:
    cards: list[_Card] = []
    taken: set[str] = set()
    for finding in report.findings:
        stem = re.sub(r"[^A-Za-z0-9_.-]+", "-", finding.id).strip("-")[:60] or "x"
        anchor = f"finding-{stem}"
        while anchor in taken:
            anchor += "-again"
        taken.add(anchor)
        cost = words.ms(finding.cost_ms_per_step) if finding.cost_ms_per_step is not None else ""
        gain = words.gain(finding, report.verdict.step_ms)
        cards.append(_Card(anchor, finding, cost, gain, _LEVELS.get(finding.confidence, 1)))
    return cards


@functools.cache
def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.FunctionLoader(_asset),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters |= {
        "line": words.one_line,
        "prose": _prose,
        "cause": words.cause,
        "ms": words.ms,
        "pct": words.pct,
        "ranks": words.ranks,
        "failed": _failed,
    }
    return environment


def _prose(text: object, limit: int = 400) -> str:
    return words.keep_units(words.prose(text, limit))


def _failed(error: ReportError) -> str:
    return words.elide(words.clean(error.message), 4000)


def _asset(name: str) -> str:
    return resources.files(__package__).joinpath(_TEMPLATES).joinpath(name).read_text(encoding="utf-8")


def _policy(style: str, script: str) -> str:
    """A policy that allows our own style and script by hash, and nothing else from anywhere."""

    def source(text: str) -> str:
        digest = hashlib.sha256(text.encode()).digest()
        return f"'sha256-{base64.b64encode(digest).decode()}'"

    return (
        f"default-src 'none'; style-src {source(style)}; script-src {source(script)}; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )


def _embed(data: dict[str, Any]) -> Markup:
    """JSON inside a script element: without the characters that could end it."""
    text = json.dumps(data, separators=(",", ":"), allow_nan=False)
    return Markup(text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026"))  # noqa: S704
