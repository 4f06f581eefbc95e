"""All sections of the page below the verdict, in their order, and the numbers that they define.

To add one: a file beside the others that gives a ``SECTION``, its template in ``report/templates`` (a section of tables
needs none), and a line in :data:`OURS`. Then make docs/metrics.md again::

    python -c "from rankscope.report.sections import table; print(table.as_markdown(), end='')" > docs/metrics.md

Other packages add sections of tables through the entry points ``rankscope.sections`` (see :mod:`rankscope.plugins`).
"""

from __future__ import annotations

from collections.abc import Iterable

from rankscope import plugins
from rankscope.records.report import ClusterReport
from rankscope.report.common import summary
from rankscope.report.common.metrics import Metric
from rankscope.report.common.section import Section
from rankscope.report.sections.devices import efficiency, health, kernels, memory, queues
from rankscope.report.sections.ranks import (
    between,
    groups,
    marks,
    modules,
    path,
    places,
    ranks,
    regions,
    run_steps,
    steps,
    time,
)
from rankscope.report.sections.verdict import findings, gains, trust

__all__ = ["METRICS", "OURS", "SECTIONS", "as_markdown", "definitions", "hover"]

OURS: tuple[Section, ...] = (
    gains.SECTION,
    findings.SECTION,
    time.SECTION,
    steps.SECTION,
    path.SECTION,
    run_steps.SECTION,
    marks.SECTION,
    between.SECTION,
    ranks.SECTION,
    places.SECTION,
    groups.SECTION,
    modules.SECTION,
    regions.SECTION,
    efficiency.SECTION,
    queues.SECTION,
    memory.SECTION,
    health.SECTION,
    kernels.SECTION,
    trust.SECTION,
)

_THEIRS = plugins.load("sections", Section, frozenset(section.anchor for section in OURS), "anchor")

SECTIONS = (*OURS[:-1], *_THEIRS, OURS[-1])
"""Sections of other packages come before the last section, which states how reliable the page is."""


def _numbers(sections: Iterable[Section]) -> dict[str, Metric]:
    """Return the numbers of some sections, grouped by heading."""
    found = {key: metric for section in sections for key, metric in section.metrics.items()}
    headings = list(dict.fromkeys(metric.heading for metric in found.values()))
    return dict(sorted(found.items(), key=lambda item: headings.index(item[1].heading)))


METRICS = _numbers(SECTIONS)


def hover(key: str) -> str:
    """Return the definition of a number as shown on hover."""
    return METRICS[key].hover


def definitions(report: ClusterReport, shown: Iterable[str]) -> dict[str, Metric]:
    """Return the numbers that can be on this page.

    Args:
        report: of a job on CPUs, for which some numbers cannot be known, or on accelerators.
        shown: anchors of the sections that are on the page.
    """
    anchors = set(shown)
    accelerator = summary.has_accelerator(report)
    found = _numbers(section for section in SECTIONS if section.anchor in anchors or not section.optional)
    return {key: metric for key, metric in found.items() if accelerator or not metric.accelerator}


def as_markdown() -> str:
    """Return docs/metrics.md."""
    lines = [
        "# What each number means",
        "",
        "The report shows these definitions when you point at a column's head or a figure. This file is made from",
        "the files in `rankscope/report/sections`; a test holds both together.",
        "",
        "Two things to keep in mind:",
        "",
        "- **Waiting is not cost.** A collective that waits behind compute costs nothing. The cost of a cause is what",
        "  the job's step would shrink by without it.",
        "- **Compute, exposed communication, copies and idle sum to 100 %** of a rank's recorded window, which begins",
        "  with its first step, or on a device where work queued before that has ended. The bars of",
        "  the report split exposed communication into waiting and transfer, and idle into input and host, in the",
        "  proportion of the times in *Where the rest of the time goes*.",
        "",
        "Without an accelerator, *device* means the rank's main thread, and operators stand where kernels would.",
    ]
    heading = ""
    for key, metric in _numbers(OURS).items():
        if metric.heading != heading:
            heading = metric.heading
            lines += ["", f"## {heading}"]
        lines += ["", f"### {metric.label}", "", f"`{key}`, {metric.unit}. {metric.definition}"]
        if metric.bounds:
            lines += ["", f"In and out: {metric.bounds}"]
        if metric.hta:
            lines += ["", f"HTA: {metric.hta}"]
    return "\n".join(lines) + "\n"
