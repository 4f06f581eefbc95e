"""Every section of the page is in the table and complete; one that fails affects only itself."""

from __future__ import annotations

import dataclasses
import pkgutil
from collections import Counter
from importlib import import_module, resources
from pathlib import Path

import pytest

from rankscope.records.report import ClusterReport
from rankscope.report import sections
from rankscope.report.common.section import Section
from rankscope.report.formats import html
from rankscope.report.sections import table

ROOT = Path(__file__).parents[3]


def test_each_file_of_the_folders_is_in_the_table_once() -> None:
    files = [m.name for m in pkgutil.walk_packages(sections.__path__, "rankscope.report.sections.") if not m.ispkg]
    found = [import_module(name).SECTION for name in files if name != table.__name__]
    assert sorted(s.anchor for s in found) == sorted(s.anchor for s in table.OURS)


@pytest.mark.parametrize("section", table.OURS, ids=lambda s: s.anchor)
def test_a_section_has_its_template_and_defines_its_numbers_once(section: Section) -> None:
    assert (resources.files("rankscope.report") / "templates" / section.template).is_file()
    often = Counter(key for each in table.OURS for key in each.metrics)
    assert [key for key in section.metrics if often[key] != 1] == []
    for metric in section.metrics.values():
        assert metric.definition.endswith(".")


def test_each_template_belongs_to_a_section() -> None:
    folder = resources.files("rankscope.report") / "templates"
    templates = {file.name for file in folder.iterdir() if file.name.endswith(".j2")}
    assert templates - {"report.html.j2", "macros.html.j2"} == {section.template for section in table.OURS}


@pytest.mark.parametrize("where", ["build", "template"])
def test_a_section_that_fails_leaves_a_sentence(
    where: str, gpu_straggler: ClusterReport, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(_report: ClusterReport):
        if where == "build":
            raise RuntimeError("no <b>luck</b>")
        return {}

    lines = tuple(s._replace(build=broken) if s.anchor == "groups" else s for s in table.SECTIONS)
    whole = html.render(gpu_straggler)
    monkeypatch.setattr(html, "SECTIONS", lines)
    page = html.render(gpu_straggler)
    assert page.count("This section could not be made.") == 1
    assert "<b>luck" not in page
    shown = [s.anchor for s in lines if f'<section id="{s.anchor}">' in page]
    assert shown == [s.anchor for s in lines if s.anchor != "places"]  # which is of many ranks
    assert page[: page.index('<section id="groups">')] == whole[: whole.index('<section id="groups">')]
    assert page[page.index('<section id="modules">') :] == whole[whole.index('<section id="modules">') :]


def test_numbers_of_accelerators_are_not_defined_for_a_job_on_cpus(gpu_straggler: ClusterReport) -> None:
    anchors = [section.anchor for section in table.SECTIONS]
    known = table.definitions(gpu_straggler, anchors)
    assert set(known) == set(table.METRICS)
    on_cpus = dataclasses.replace(
        gpu_straggler, ranks=[dataclasses.replace(r, device="CPU") for r in gpu_straggler.ranks]
    )
    on_cpus.run = dataclasses.replace(on_cpus.run, devices=["CPU"], backend="gloo")
    assert set(known) - set(table.definitions(on_cpus, anchors)) == {
        "link_gb_s",
        "link_share_pct",
        "region.device_ms",
        "region.device_most_ms",
        *(f"work.{name}" for name in ("ms_per_step", "kernels_per_step", "tflops", "gb_s", "peak_pct")),
    }
    without = set(known) - set(table.definitions(gpu_straggler, []))
    assert without == {key for s in table.OURS if s.optional for key in s.metrics}
