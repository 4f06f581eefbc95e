"""Findings on the state of devices and hosts."""

from __future__ import annotations

import pytest

from rankscope.diagnose.rules.machine.gpu_throttled import LIMITING
from rankscope.node.health.gpus import throttle_reasons
from rankscope.records.evidence import Evidence, Suspect
from rankscope.records.rows import HealthRow
from support.diagnosing import ADVICE, find, judge

HEAT, CAP = "thermal slowdown (hardware)", "power cap"


def gpu(rank: int, sm: float | None = 1755.0, **more) -> HealthRow:
    base = {"device": "H100", "host": f"node-{rank // 8}", "samples": 4, "sm_max_mhz": 1980.0}
    return HealthRow(rank=rank, sm_mhz=sm, **{**base, **more})


def evidence(*rows: HealthRow, **more) -> Evidence:
    return Evidence(ranks=[r.rank for r in rows], health=list(rows), **more)


def test_a_hot_device_is_named_with_its_numbers() -> None:
    hot = gpu(2, 1155.0, throttle={HEAT: 75.0}, temperature_c=87, power_w=352.0, power_limit_w=700.0)
    peers = [gpu(r, temperature_c=64, power_w=650.0, power_limit_w=700.0) for r in (0, 1, 3)]
    (found,) = find(evidence(*peers, hot))
    assert (found.kind, found.ranks, found.confidence, found.cost_ms_per_step) == ("gpu_throttled", [2], "high", None)
    assert found.title == "Rank 2's GPU is throttled: heat"
    assert found.evidence == [
        "Its SM clock is 1155 MHz of at most 1980; its peers' is 1755 MHz.",
        "The driver says: thermal slowdown (hardware), in 75 % of the samples; on its peers in 0 %.",
        "It reached 87 °C, its peers 64 °C.",
        "It draws 352 W of the 700 W it is allowed; its peers draw 650 W.",
    ]
    assert found.advice == ADVICE["gpu_throttled"]


@pytest.mark.parametrize(
    ("sm", "throttle", "theirs", "confidence"),
    [
        (1755.0, {}, {}, None),  # like its peers
        (1600.0, {}, {}, None),  # 9 % below, no reason
        (1570.0, {}, {}, "medium"),  # 11 % below
        (1600.0, {HEAT: 60.0}, {}, "medium"),  # 9 % below, with a reason
        (1720.0, {HEAT: 60.0}, {}, "told of all"),  # 2 % below: no difference, but hot
        (1720.0, {CAP: 100.0}, {}, None),  # a cap that slows nobody
        (1600.0, {CAP: 100.0}, {CAP: 100.0}, None),  # all are capped
        (1570.0, {CAP: 100.0}, {CAP: 100.0}, "medium"),  # and yet one is clearly slower
        (1570.0, {CAP: 100.0}, {CAP: 5.0}, "high"),
        (1570.0, {CAP: 40.0}, {}, "medium"),  # now and then is no reason
        (345.0, {"idle": 90.0}, {}, None),  # nothing to do is no fault
        (1570.0, {"clocks set by an administrator": 100.0}, {}, "medium"),  # a choice, but slower all the same
        (None, {HEAT: 10.0}, {}, None),
    ],
)
def test_when_a_device_is_throttled(sm, throttle, theirs, confidence) -> None:
    found = find(evidence(*(gpu(r, throttle=theirs) for r in (0, 1, 2)), gpu(3, sm, throttle=throttle)))
    if confidence == "told of all":
        assert [f.title for f in found] == ["GPUs are throttled: heat"]
    else:
        assert [(f.ranks, f.confidence) for f in found] == ([] if confidence is None else [([3], confidence)])


def test_devices_of_another_kind_are_no_peers() -> None:
    assert find(evidence(gpu(0, 1980.0), gpu(1, 1980.0), gpu(2, 1410.0, device="A100"))) == []


def test_all_devices_hot_is_one_finding() -> None:
    (found,) = find(evidence(*(gpu(r, 1200.0, throttle={HEAT: 100.0}) for r in range(4))))
    assert (found.ranks, found.title) == ([0, 1, 2, 3], "GPUs are throttled: heat")
    assert found.evidence == [
        "Heat slows 4 of 4 GPUs down in most of the samples.",
        "Their SM clock is 1200 MHz of 1980 MHz.",
    ]


def test_the_reasons_are_those_the_drivers_give() -> None:
    words = {reason for bit in range(11) for reason in throttle_reasons(1 << bit)}
    assert set(LIMITING) <= words
    assert words - set(LIMITING) == {"idle", "clocks set by an administrator", "sync boost", "display clocks"}


def test_lost_memory_is_reported() -> None:
    (found,) = find(evidence(gpu(0), gpu(1, ecc_uncorrected=2, ecc_corrected=7), gpu(2, ecc_uncorrected=0)))
    assert (found.kind, found.ranks) == ("ecc_errors", [1])
    assert found.evidence == ["Since its driver was loaded: 2 uncorrected, 7 corrected."]


@pytest.mark.parametrize(
    ("link", "peers", "lines"),
    [
        ({"pcie_width": 16, "pcie_width_max": 16}, {"pcie_width": 16, "pcie_width_max": 16}, []),
        ({"pcie_width": 8, "pcie_width_max": 16}, None, ["8 of 16 lanes are in use."]),  # alone, by its own maximum
        ({"pcie_width": 8}, {"pcie_width": 16}, ["8 of 16 lanes are in use."]),
        (
            {"pcie_width": 16, "pcie_generation": 3, "pcie_generation_max": 5, "pcie_replays": 9},
            {"pcie_width": 16, "pcie_generation": 5},
            [
                "It runs at generation 3, its peers' at generation 5.",
                "9 transfers were repeated within the recorded windows.",
            ],
        ),
        ({"pcie_generation": 1, "pcie_generation_max": 5}, {"pcie_generation": 1}, []),  # links at rest
        ({}, {"pcie_width": 16}, []),
    ],
)  # fmt: skip
def test_a_degraded_link(link, peers, lines) -> None:
    rows = [gpu(0, **link)] + ([] if peers is None else [gpu(1, **peers), gpu(2, **peers)])
    assert [(f.ranks, f.evidence) for f in find(evidence(*rows))] == ([([0], lines)] if lines else [])


def test_a_quota_that_runs_out_is_reported_once_a_host() -> None:
    spent = {"cpu_throttled_pct": 40.0, "cpu_throttled_ms": 1830.0, "cpus": 4.0}
    rows = [gpu(r, **(spent if r < 8 else {"cpu_throttled_pct": 4.0, "cpu_throttled_ms": 2.0})) for r in range(16)]
    (found,) = find(evidence(*rows))
    assert (found.kind, found.ranks) == ("cpu_throttled", list(range(8)))
    assert found.evidence == [
        (
            "The quota of 4 CPUs on node-0 ran out in 40 % of the scheduling periods while recording; "
            "threads were held 1,830 ms in all."
        )
    ]


def _late(cause: str, *rows: HealthRow) -> Evidence:
    suspect = Suspect(
        rank=1, cost_ms=20.0, error_ms=1.0, gains_ms=[20.0] * 6, excess_ms=20.0, explained={cause: 18.0}, p_value=0.01
    )
    more = {"steps": 6, "step_ms": 100.0, "calls": 60, "matched_pct": 100.0, "overlap_pct": 80.0}
    return evidence(*rows, suspects=[suspect], **more)


@pytest.mark.parametrize(
    ("cause", "own", "said"),
    [
        ("slow_compute", {"sm": 1155.0, "throttle": {HEAT: 75.0}}, "Likely reason: Rank 1's GPU is throttled: heat."),
        ("slow_compute", {"ecc_uncorrected": 3}, None),  # they end jobs, but do not slow them
        ("slow_compute", {"pcie_width": 8, "pcie_width_max": 16}, None),  # slow kernels are no matter of the link
        ("h2d_copy", {"pcie_width": 8, "pcie_width_max": 16}, "Likely reason: Rank 1's GPU has a degraded PCIe link."),
        ("launch_bound", {"cpu_throttled_pct": 30.0}, "Likely reason: The CPU quota of the job's cgroup runs out."),
        (
            "host_pause",
            {"gc_ms_per_step": 12.0},
            "Likely reason: garbage collection takes 12 ms per step there, 0.10 ms",
        ),
        ("host_pause", {"gc_ms_per_step": 1.0}, None),
        ("slow_compute", {"gc_ms_per_step": 12.0}, None),
        ("uneven_work", {"sm": 1155.0}, None),
        ("slow_compute", {}, None),
    ],
)
def test_a_late_rank_s_state_is_its_likely_reason(cause, own, said) -> None:
    case = _late(cause, gpu(0, gc_ms_per_step=0.1), gpu(1, **own), gpu(2, gc_ms_per_step=0.1))
    findings = find(case)
    verdict = judge(case)
    assert (verdict.ranks, verdict.cause) == ([1], cause)
    late = next(f for f in findings if f.kind == cause)
    for lines in (verdict.why, late.evidence):
        likely = [line for line in lines if line.startswith("Likely reason:")]
        assert [line for line in likely if said and line.startswith(said)] == likely
        assert bool(likely) == (said is not None)


def test_what_all_ranks_share_is_no_reason() -> None:
    spent = {"cpu_throttled_pct": 30.0}
    case = _late("launch_bound", gpu(0, **spent), gpu(1, **spent), gpu(2, **spent))
    findings = find(case)
    assert {f.kind for f in findings} == {"launch_bound", "cpu_throttled"}
    assert not any("Likely" in line for line in judge(case).why)


def test_another_rank_s_state_is_no_reason() -> None:
    case = _late("slow_compute", gpu(0, 1155.0, throttle={HEAT: 75.0}), gpu(1), gpu(2))
    assert not any("Likely" in line for line in judge(case).why)


def test_without_health_nothing_is_reported() -> None:
    assert find(evidence(HealthRow(rank=0), HealthRow(rank=1))) == []


def test_titles_are_short() -> None:
    everything = {
        "throttle": {"hardware slowdown": 90.0},
        "ecc_uncorrected": 1,
        "pcie_width": 8,
        "cpu_throttled_pct": 9.0,
    }
    found = find(evidence(gpu(0, pcie_width=16), gpu(1000, 1000.0, **everything), gpu(1001, pcie_width=16)))
    assert {f.kind for f in found} == {"gpu_throttled", "ecc_errors", "pcie_degraded", "cpu_throttled"}
    assert all(len(f.title) <= 60 for f in found)
