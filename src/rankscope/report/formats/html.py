"""One self-contained page: it makes no requests, and no text of a trace can become markup or script."""

from __future__ import annotations

import base64
import functools
import hashlib
import json
from importlib import resources
from typing import Any

import jinja2
from markupsafe import Markup

from rankscope.causes.wording import step_time
from rankscope.listing import some_ranks
from rankscope.records.report import ClusterReport, ReportError
from rankscope.report.common import plain_text, summary
from rankscope.report.common import wording as words
from rankscope.report.common.rounding import tidy
from rankscope.report.common.section import Section, Variables
from rankscope.report.formats.page_tables import SHOWN_ROWS, as_data, sorted_by
from rankscope.report.sections.ranks.steps import heatmap
from rankscope.report.sections.table import SECTIONS, definitions, hover
from rankscope.report.sections.verdict.findings import LEVELS

__all__ = ["render"]

_TEMPLATES = "templates"
_SCRIPTS = ("report.js", "step_bars.js", "heat_colours.js", "heat_hosts.js", "heat_map.js", "steps.js")
_SIGNS = {
    "straggler": "▲",
    "balanced": "✓",
    "host_bound": "◆",
    "comm_bound": "⇄",
    "memory_bound": "▤",
    "pipeline": "≡",
    "contended": "⧗",
    "insufficient_data": "?",
}


def render(report: ClusterReport, *, timeline: str | None = None) -> str:
    """Return the page. ``timeline`` is the name of the merged timeline beside it, if there is one."""
    report = tidy(report)
    style, script = _compact("report.css"), "".join(map(_compact, _SCRIPTS))
    page = _environment().get_template("report.html.j2").render(
        **_context(report),
        style=Markup(style),  # noqa: S704 - ours, from the package
        script=Markup(script),  # noqa: S704 - ours, from the package
        policy=_policy(style, script),
        timeline=timeline,
        data=_embed({"heat": heatmap(report)}),
    )  # fmt: skip
    return plain_text.clean(page)


def _context(report: ClusterReport) -> dict[str, Any]:
    verdict = report.verdict
    return {
        "report": report,
        "run": report.run,
        "verdict": verdict,
        "cost": words.plus_minus(verdict.cost_ms_per_step, verdict.cost_error_ms, "").partition(" ± ")[::2],
        "folder": _folder(report),
        "kind": words.kind(verdict),
        "kind_class": verdict.kind if verdict.kind in words.KIND_LABELS else "insufficient_data",
        "sign": _SIGNS.get(verdict.kind, "?"),
        "level": LEVELS.get(verdict.confidence, 1),
        "sentence": plain_text.keep_units(words.sentence(verdict)),
        "step": None if verdict.step_ms is None else step_time(verdict.step_ms).split(),
        "without": words.without(verdict),
        "share": words.share_of_step(verdict.cost_ms_per_step, verdict.step_ms),
        "serious": bool(report.errors) or any(rank.status != "ok" for rank in report.ranks),
        "versions": _versions(report),
        "throughput": summary.throughput_line(report),
        "warnings": summary.warnings(report),
        "sections": _sections(report),
    }


def _versions(report: ClusterReport) -> str:
    known = report.run.versions
    shown = [f"{name} {known[name]}" for name in ("torch", "nccl", "cuda_runtime", "rankscope") if known.get(name)]
    return plain_text.one_line(", ".join(shown), 120)


def _folder(report: ClusterReport) -> str:
    """Return the folder of all traces, for a report on traces without a run directory."""
    used = [source.path for source in report.sources if source.status == "used"]
    if report.run.source != "traces":
        return ""
    folders = {path.rpartition("/")[0] for path in used}
    return (
        plain_text.elide(plain_text.one_line(folders.pop(), 400), 120)
        if len(folders) == 1
        else "in several folders"
        if folders
        else ""
    )


def _sections(report: ClusterReport) -> list[dict[str, Any]]:
    """Return anchor, name, heading and markup of each section that has content."""
    built = [(section, values) for section in SECTIONS if (values := _build(section, report)) is not None]
    defined = definitions(report, (section.anchor for section, _ in built))
    common = {
        "report": report,
        "run": report.run,
        "definitions": defined,
        "means": {metric.hover: key for key, metric in defined.items()},
    }
    return [_rendered(section, common | values) for section, values in built]


def _build(section: Section, report: ClusterReport) -> Variables | None:
    try:
        return section.build(report)
    except Exception as error:
        return {"error": error}


def _rendered(section: Section, values: Variables) -> dict[str, Any]:
    """Render one section; if that fails, a sentence replaces it and the rest of the page is unchanged."""
    heads = {"nav": section.nav, "title": section.title} | values
    error = values.get("error")
    if error is None:
        try:
            body = _environment().get_template(section.template).render(heads)
        except Exception as failure:
            error = failure
    if error is not None:
        text = plain_text.one_line(f"{type(error).__name__}: {error}")
        body = str(Markup('<p class="note">This section could not be made. {}</p>\n').format(text))
    markup = Markup(body)  # noqa: S704 - escaped by its template, or just above
    return {"anchor": section.anchor, "nav": heads["nav"], "title": heads["title"], "body": markup}


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
    environment.globals |= {"hover": hover, "shown_rows": SHOWN_ROWS}
    environment.filters |= {
        "line": plain_text.one_line,
        "prose": _prose,
        "cause": words.cause,
        "ms": words.ms,
        "pct": words.pct,
        "ranks": some_ranks,
        "failed": _failed,
        "rest": lambda table, shown: _embed(as_data(table, shown)),
        "embed": _embed,
        "sorted_by": sorted_by,
    }
    return environment


def _prose(text: object, limit: int = 400) -> str:
    return plain_text.keep_units(plain_text.prose(text, limit))


def _failed(error: ReportError) -> str:
    return plain_text.elide(plain_text.clean(error.message), 4000)


def _asset(name: str) -> str:
    return resources.files("rankscope.report").joinpath(_TEMPLATES).joinpath(name).read_text(encoding="utf-8")


def _compact(name: str) -> str:
    """Return a style or script without indentation and without lines that are comments."""
    lines = (line.strip() for line in _asset(name).splitlines())
    return "".join(f"{line}\n" for line in lines if line and not line.startswith("//"))


def _policy(style: str, script: str) -> str:
    """Return a content security policy that allows our own style and script by hash, and nothing else from any
    source."""

    def source(text: str) -> str:
        digest = hashlib.sha256(text.encode()).digest()
        return f"'sha256-{base64.b64encode(digest).decode()}'"

    return (
        f"default-src 'none'; style-src {source(style)}; script-src {source(script)}; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )


def _embed(data: Any) -> Markup:
    """Return JSON for a script element: without the characters that could end the element."""
    text = json.dumps(data, separators=(",", ":"), allow_nan=False)
    return Markup(text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026"))  # noqa: S704
