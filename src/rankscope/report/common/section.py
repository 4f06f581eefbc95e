"""Definition of a section of the page; every other file of this folder but the table defines one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from rankscope.records.report import ClusterReport
from rankscope.report.common.cells import Table
from rankscope.report.common.metrics import Metric

__all__ = ["Section", "Variables", "tables"]

Variables = dict[str, Any]


class Section(NamedTuple):
    """One section of the page below the verdict."""

    anchor: str
    """Its id in the page, which never changes."""
    nav: str
    """Its name in the page's navigation, unless ``build`` returns another."""
    title: str
    """Its heading, unless ``build`` returns another."""
    build: Callable[[ClusterReport], Variables | None]
    """Returns the variables of the template, or None if there is nothing to show."""
    metrics: Mapping[str, Metric] = {}
    """The numbers that this section is the first to show. Keys are unique over all sections."""
    template: str = "tables.html.j2"
    """File in ``report/templates``."""
    optional: bool = False
    """Whether its numbers are left out of the page's definitions if the section is."""


def tables(lead: str, *found: tuple[str, Table]) -> Variables:
    """Return the variables of ``tables.html.j2``: a first paragraph, then the tables that have rows, with captions."""
    return {"lead": lead, "tables": [(caption, table) for caption, table in found if table.rows]}
