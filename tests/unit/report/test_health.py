"""Health in the page: measured values are shown, and columns without values are left out."""

from __future__ import annotations

import pytest

from rankscope.records.report import ClusterReport
from rankscope.records.rows import HealthRow
from rankscope.report import WRITERS
from rankscope.report.common import wording as words
from rankscope.report.common.cells import Table
from rankscope.report.sections.devices import health

HOT = {"thermal slowdown (hardware)": 75.0, "power cap": 25.0}


@pytest.fixture
def report(gpu_straggler: ClusterReport) -> ClusterReport:
    """Two devices of one host; the verdict names rank 1."""
    gpu_straggler.health = [
        HealthRow(
            rank=1, host="node-0", samples=4, sm_mhz=1155.0, power_w=352.4, temperature_c=87.0, throttle=HOT,
            pcie_width=8, cpus=4.0, load_1m=2.25, memory_available_bytes=3 << 30,
        ),
        HealthRow(
            rank=0, host="node-0", samples=4, sm_mhz=1755.0, power_w=650.0, temperature_c=64.0,
            cpus=4.0, load_1m=8.0, memory_available_bytes=5 << 30, cpu_throttled_pct=40.0, cpu_throttled_ms=1830.5,
        ),
    ]  # fmt: skip
    return gpu_straggler


def shown(table: Table) -> list[dict[str, str]]:
    labels = [column.label for column in table.columns]
    return [dict(zip(labels, [cell.text for cell in row.cells], strict=True)) for row in table.rows]


def test_devices_by_rank(report: ClusterReport) -> None:
    table = health.devices(report)
    assert shown(table) == [
        {
            "Rank": "0", "SM clock": "1,755", "Clock held down by": words.DASH, "Temperature": "64", "Power": "650",
            "PCIe width": words.DASH,
        },
        {
            "Rank": "1", "SM clock": "1,155", "Clock held down by": "thermal slowdown (hardware) 75 %, power cap 25 %",
            "Temperature": "87", "Power": "352", "PCIe width": "8",
        },
    ]  # fmt: skip
    assert [row.mark for row in table.rows] == ["", "named"]


def test_errors_are_shown_where_there_are_any(report: ClusterReport) -> None:
    for row in report.health:
        row.ecc_uncorrected = row.pcie_replays = 0
    assert not {"ECC uncorrected", "PCIe replays"} & set(shown(health.devices(report))[0])
    report.health[0].ecc_uncorrected = 2
    assert [row["ECC uncorrected"] for row in shown(health.devices(report))] == ["0", "2"]


def test_of_a_host_the_worst_is_shown_once(report: ClusterReport) -> None:
    assert shown(health.hosts(report)) == [
        {
            "Host": "node-0", "Ranks": "0, 1", "CPUs": "4.0", "Load": "8.0", "CPU quota spent": "40.0",
            "Held for that": "1,830", "Memory available": "3.0",
        }
    ]  # fmt: skip


def test_pauses_of_the_collector_are_shown_without_a_device(report: ClusterReport) -> None:
    report.health = [HealthRow(rank=0, host="node-0", gc_ms_per_step=0.25), HealthRow(rank=1, host="node-0")]
    assert shown(health.devices(report)) == [{"Rank": "0", "Garbage collection": "0.25"}]


def test_without_samples_there_is_no_table(report: ClusterReport) -> None:
    report.health = [HealthRow(rank=0, host="node-0", load_1m=1.0)]
    assert health.devices(report).rows == []
    assert len(health.hosts(report).rows) == 1
    report.health = [HealthRow(rank=0, host="node-0", samples=1, sm_mhz=1.0)]
    assert health.hosts(report).rows == []
    report.health = []
    assert (health.devices(report).rows, health.hosts(report).rows) == ([], [])


def test_the_section_is_in_the_page(report: ClusterReport) -> None:
    page = WRITERS["html"](report)
    assert 'id="table-health"' in page
    assert 'id="table-hosts"' in page
    assert "thermal slowdown (hardware) 75 %" in page
    report.health = []
    assert 'id="health"' in page
    assert 'id="health"' not in WRITERS["html"](report)
