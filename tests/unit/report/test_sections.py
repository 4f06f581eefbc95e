"""Sections appear only with their data; each number of a record is in the column with its name."""

from __future__ import annotations

import dataclasses

import pytest

from rankscope.records.report import Action, ClusterReport
from rankscope.records.rows import MemoryFrame, MemoryRow
from rankscope.report import WRITERS
from rankscope.report.common import summary
from rankscope.report.common.cells import Table
from rankscope.report.common.rank_rows import rank_rows
from rankscope.report.common.wording import DASH
from rankscope.report.formats import html
from rankscope.report.sections import table as sections
from rankscope.report.sections.devices import memory, queues
from rankscope.report.sections.ranks import modules, path, steps, time
from rankscope.report.sections.verdict import findings, gains


def shown(report: ClusterReport) -> list[str]:
    text = html.render(report)
    return [section.anchor for section in sections.SECTIONS if f'<section id="{section.anchor}">' in text]


def cells(table: Table) -> list[dict[str, str]]:
    return [{c.label: cell.text for c, cell in zip(table.columns, row.cells, strict=True)} for row in table.rows]


def test_sections_come_with_their_data(gpu_straggler: ClusterReport) -> None:
    of_few = [section for section in sections.SECTIONS if section.anchor != "places"]  # which is of many ranks
    everything = [section.anchor for section in of_few]
    assert shown(gpu_straggler) == everything
    text = html.render(gpu_straggler)
    for section in of_few:
        assert f'<a href="#{section.anchor}">{section.nav}</a>' in text
    gpu_straggler.actions = []
    for name, anchor in (
        ("findings", "findings"),
        ("steps", "steps"),
        ("groups", "groups"),
        ("modules", "modules"),
        ("queues", "queues"),
        ("what_if", "gains"),
        ("memory", "memory"),
        ("health", "health"),
        ("kernels", "kernels"),
    ):
        setattr(gpu_straggler, name, type(getattr(gpu_straggler, name))())
        everything.remove(anchor)
        assert shown(gpu_straggler) == everything, f"without {name}"
        assert f'href="#{anchor}"' not in html.render(gpu_straggler)
    gpu_straggler.efficiency = None
    everything.remove("efficiency")
    gpu_straggler.pulse = None
    everything.remove("pulse")
    assert shown(gpu_straggler) == everything
    assert {"time", "ranks", "trust"} <= set(everything)


def test_modules(gpu_straggler: ClusterReport) -> None:
    assert cells(modules.modules(gpu_straggler))[0] == {
        "Module or bucket": "bucket 2",
        "Group": "default_pg",
        "Ranks": "0, 1",
        "Collective": "all_reduce",
        "Calls": "1.0",
        "Size": "26.20",
        "Wait": "1.30",
        "Transfer": "0.150",
        "Exposed": "25.90",
        "Bus bandwidth": "181.4",
        "Link": "450",
        "Of the link": "40",
    }


def test_queues(gpu_straggler: ClusterReport) -> None:
    assert cells(queues.queues(gpu_straggler))[1] == {
        "Rank": "1",
        "Idle for the host": "56.3",
        "Outstanding": "0.0",
        "Most": "912",
        "Launch delay": "9.2",
    }


def test_gains(gpu_straggler: ClusterReport) -> None:
    found = cells(gains.gains(gpu_straggler))
    assert found[0] == {"With": "no host overhead", "Gain": "4.20", "Of the step": "4"}, "4.2 of 112.5 ms, most first"
    assert [row["Gain"] for row in found] == ["4.20", "0.40", "0.40", "0.10"]


def test_idle(gpu_straggler: ClusterReport) -> None:
    assert cells(time.idle(gpu_straggler))[1] == {
        "Rank": "1",
        "Waiting for peers": "0.30",
        "Transfer": "3.30",
        "Idle: input": "60.80",
        "Idle: host": "4.10",
        "Copies": "1.35",
    }


def legend(report: ClusterReport) -> list[str]:
    (section,) = (s for s in sections.SECTIONS if s.anchor == "steps")
    return [label for _, label, _ in section.build(report)["legend"]]


@pytest.mark.parametrize("none", [None, 0.0])
def test_steps_tell_of_input_where_a_step_waits_for_it(gpu_straggler: ClusterReport, none: float | None) -> None:
    for row in gpu_straggler.steps:
        row.input_ms = none
    assert legend(gpu_straggler) == ["Compute", "Waiting and transfer", "Copies and rest", "Idle: host"]
    assert "input_ms" not in {metric["key"] for metric in steps.heatmap(gpu_straggler)["metrics"]}
    gpu_straggler.steps[3].input_ms = 2.5
    assert legend(gpu_straggler) == [
        "Compute", "Waiting and transfer", "Copies and rest", "Idle: input", "Idle: host"
    ]  # fmt: skip
    for row in gpu_straggler.steps:
        row.waiting_ms = 0.3
    assert legend(gpu_straggler)[1:3] == ["Waiting for peers", "Transfer"], "as in the bars of ranks"
    (found,) = (metric for metric in steps.heatmap(gpu_straggler)["metrics"] if metric["key"] == "input_ms")
    assert found["values"][3] == 250


def test_memory(gpu_straggler: ClusterReport) -> None:
    gpu_straggler.memory[0].device_bytes = 12 << 30
    table = memory.memory(gpu_straggler)
    assert cells(table) == [
        {
            "Rank": "0",
            "When": "attempt 0, window 0",
            "Peak allocated": "3.00",
            "Peak reserved": "5.00",
            "Reserved, unused": "4.00",
            "Free at the peak": "7.00",
            "Device allocations": "12",
            "Device frees": "0",
            "Snapshot": "rank_00000.memory.pickle",
        }
    ]
    assert table.note == "1 of these histories began after their window did; the peak may have been higher."
    assert cells(memory.frames(gpu_straggler))[0]["Line"] == "train.py:41 forward"
    row = gpu_straggler.memory[0]
    row.window, row.requested_bytes = None, 2**31
    assert cells(memory.memory(gpu_straggler))[0]["When"] == "attempt 0, out of memory"
    assert cells(memory.memory(gpu_straggler))[0]["Asked for"] == "2.00"


def test_the_critical_path_rank_by_rank(gpu_straggler: ClusterReport) -> None:
    """Half of a step of 100 ms on rank 1, and a kernel of 0.2 ms, which is too short to be drawn by itself."""
    first, second = path.lanes(gpu_straggler.critical_path, [1])
    assert (first.who, first.named, first.said) == ("rank 1", True, "host 50.0 ms, compute 0.20 ms")
    assert first.boxes == [path.Box(0.0, 50.0, "input", "host, waiting for input: 50.0 ms", "waiting for input")]
    assert first.shapes == [("compute", "M50 0h0.2v1h-0.2z")]
    assert (second.who, second.boxes[0].x) == ("rank 0", 50.2)
    built = path.SECTION.build(gpu_straggler)
    assert built["lead"].endswith("On average the step is decided by: host of rank 1 60.0 ms.")
    assert [row["Work"] for row in cells(built["table"])] == ["waiting for input", "all_reduce of dp", "aten::mm"]
    assert "One step, and its critical path" in WRITERS["html"](gpu_straggler)
    gpu_straggler.critical_path = None
    assert path.SECTION.build(gpu_straggler) is None


def test_the_same_line_on_all_ranks(gpu_straggler: ClusterReport) -> None:
    row = gpu_straggler.memory[0]
    assert memory.across(gpu_straggler).rows == [], "one rank alone"

    def holding(rank: int, window: int | None, *held: tuple[str, int]) -> MemoryRow:
        top = [MemoryFrame(frame=line, bytes=gib << 30, count=1) for line, gib in held]
        return dataclasses.replace(row, rank=rank, window=window, top=top)

    gpu_straggler.memory = [
        holding(0, 0, ("a.py:1 f", 2), ("b.py:2 g", 3)),
        holding(1, 0, ("a.py:1 f", 4)),
        holding(2, 0, ("a.py:1 f", 3)),
        holding(2, None, ("a.py:1 f", 9)),
    ]
    assert cells(memory.across(gpu_straggler)) == [
        {"Line": "a.py:1 f", "Most": "9.000", "On rank": "2", "Median rank": "4.000", "Ranks that list it": "3"},
        {"Line": "b.py:2 g", "Most": "3.000", "On rank": "0", "Median rank": DASH, "Ranks that list it": "1"},
    ]


def test_memory_from_traces(gpu_straggler: ClusterReport) -> None:
    def lead() -> str:
        (section,) = (s for s in sections.SECTIONS if s.anchor == "memory")
        return section.build(gpu_straggler)["lead"]

    both = gpu_straggler.memory
    other = dataclasses.replace(both[0], rank=1, file=None, segment_allocs=None, segment_frees=None, top=[])
    other.peak_per_step = [2**30, 9 * 2**20, 2**30 + 2**20]
    both.append(other)
    found = cells(memory.memory(gpu_straggler))
    assert [row["Growth of the peak"] for row in found] == [DASH, "0.500"]
    assert (found[1]["Device allocations"], found[1]["Device frees"], found[1]["Snapshot"]) == (DASH, DASH, DASH)
    assert lead() == (
        "From PyTorch's memory history. The snapshots open in pytorch.org/memory_viz. Ranks without a snapshot: from "
        "the allocator's totals in their traces, which do not tell who holds the memory."
    )
    gpu_straggler.memory = both[1:]
    assert set(cells(memory.memory(gpu_straggler))[0]) == {
        "Rank", "When", "Peak allocated", "Growth of the peak", "Peak reserved", "Reserved, unused",
    }  # fmt: skip
    assert "history" not in lead()
    for write in WRITERS.values():
        assert write(gpu_straggler)


def test_idle_times_that_are_alike_are_told_once(gpu_straggler: ClusterReport) -> None:
    """Of a step of 112.5 ms; what takes less than 1.125 ms on all ranks is left out."""
    for row in gpu_straggler.idle:
        row.host_ms, row.input_ms = 14.8, 1.1
    assert summary.idle_line(gpu_straggler) == "devices idle for their hosts 14.8 ms, per step"
    gpu_straggler.idle[0].host_ms = gpu_straggler.idle[1].host_ms = 1.0
    assert summary.idle_line(gpu_straggler) is None


@pytest.mark.parametrize("name", ["terminal", "markdown"])
def test_modules_queue_and_memory_in_a_line_each(gpu_straggler: ClusterReport, name: str) -> None:
    assert "most transfer" not in WRITERS[name](gpu_straggler)  # they wait for the rank that the verdict names
    gpu_straggler.verdict.kind = "comm_bound"
    # of 25.9 ms that nothing hides most is waiting for peers, of 1.2 ms none
    gpu_straggler.modules[0].transfer_ms_per_step, gpu_straggler.modules[1].transfer_ms_per_step = 3.0, 2.4
    text = " ".join(WRITERS[name](gpu_straggler).replace("\\", "").split())
    assert (
        "most transfer that nothing hides, per step: all-reduce of bucket 2 3.00 ms, all-reduce of bucket 1 1.20 ms"
        in text
    )
    assert (
        "for their hosts 4.10 ms (rank 1) to 14.8 ms (rank 0), for input 0.30 ms (rank 0) to 60.8 ms (rank 1)" in text
    )
    assert "peak 3.0 GiB allocated, 5.0 GiB reserved (rank 0)" in text


def test_many_named_ranks_are_one_row_and_one_finding(gpu_straggler: ClusterReport) -> None:
    """Ranks 8 to 15 of 64 are late in one way: one bar beside that of the 56 others, and no card but the verdict."""
    one, late = dataclasses.replace(gpu_straggler.findings[0], kind="input_stall"), range(8, 16)
    gpu_straggler.ranks = [dataclasses.replace(gpu_straggler.ranks[0], rank=n) for n in range(64)]
    gpu_straggler.verdict = dataclasses.replace(gpu_straggler.verdict, ranks=[*late], cause=one.kind)
    costs = {n: 22.0 - n / 10 for n in late}
    gpu_straggler.findings = [
        dataclasses.replace(one, id=f"f{n}", ranks=[n], cost_ms_per_step=costs[n], advice=["Do."]) for n in late
    ]
    rows = rank_rows(gpu_straggler, 8)
    assert [(row.label, row.named) for row in rows] == [("8-15", True), ("56 others", False)]
    gpu_straggler.actions = []
    first, *more = findings.shown_findings(gpu_straggler)
    assert (first.ranks, first.cost_ms_per_step, more) == ([*late], 21.2, [])
    assert first.title == "8 ranks are late: waiting for input"
    assert first.evidence[0] == "Each of them costs 20 ms to 21 ms, which do not add up."
    gpu_straggler.actions = [Action(code="mend_x", text="Do.", ranks=[*late], kind="replay", saves_ms=22.0)]
    assert findings.shown_findings(gpu_straggler) == [], "the verdict says it"
