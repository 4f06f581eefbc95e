"""The peak bandwidth of a link is shown where it is known, and only there."""

from __future__ import annotations

import pytest

from rankscope import device_links as links
from rankscope.records.report import ClusterReport
from rankscope.records.rows import RankSummary
from rankscope.report.common import wording as words
from rankscope.report.sections.ranks import groups as calls

SXM = "NVIDIA H100 80GB HBM3"


@pytest.mark.parametrize(
    ("device", "gb_s"),
    [
        (SXM, 450.0),
        ("NVIDIA A100-SXM4-80GB", 300.0),
        ("NVIDIA H200", 450.0),
        ("NVIDIA L4", 32.0),
        ("NVIDIA H100 PCIe", None),  # a bridge is optional
        ("NVIDIA H100 NVL", None),
        ("NVIDIA H200 NVL", None),
        ("NVIDIA A100 80GB PCIe", None),
        ("NVIDIA L40", None),
        ("cpu", None),
        ("", None),
        (None, None),
    ],
)
def test_only_known_devices(device: str | None, gb_s: float | None) -> None:
    found = links.link_of(device)
    assert (found.gb_s if found else None) == gb_s


@pytest.mark.parametrize(
    ("hosts", "devices", "known"),
    [
        (("a", "a"), (SXM, SXM), True),
        (("a", "b"), (SXM, SXM), False),
        ((None, None), (SXM, SXM), False),
        (("a", "a"), (SXM, "NVIDIA L4"), False),
        (("a", "a"), (SXM, None), False),
    ],
)
def test_one_host_and_one_kind_of_device(hosts: tuple[str], devices: tuple[str], known: bool) -> None:
    ranks = {n: RankSummary(rank=n, host=h, device=d) for n, (h, d) in enumerate(zip(hosts, devices, strict=True))}
    assert (links.link_between([0, 1], ranks) is not None) is known
    assert links.link_between([0, 1, 2], ranks) is None, "rank 2 left nothing"


def test_the_table_sets_bandwidth_against_the_link(gpu_straggler: ClusterReport) -> None:
    def cells(report: ClusterReport) -> dict[str, list[str]]:
        table = calls.groups(report)
        return {c.label: [row.cells[i].text for row in table.rows] for i, c in enumerate(table.columns)}

    found = cells(gpu_straggler)
    assert found["Link"] == ["450", "450"]
    assert found["Of the link"] == ["40", words.DASH], "181.4 of 450 GB/s; nothing is known of the other call"
    gpu_straggler.ranks[1].host = "node-1"
    found = cells(gpu_straggler)
    assert found["Link"] == ["unknown", "unknown"]
    assert "Of the link" not in found
    for rank in gpu_straggler.ranks:
        rank.device = "cpu"
    gpu_straggler.run.devices = ["cpu"]
    assert "Link" not in cells(gpu_straggler)
