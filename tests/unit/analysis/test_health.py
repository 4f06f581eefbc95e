"""Rows of health from records; every expected number is calculated by hand."""

from __future__ import annotations

from rankscope.analysis.pipeline import analyze
from rankscope.analysis.tables.health import health_rows
from rankscope.records.manifest import RunManifest, WindowRanks
from rankscope.records.rank import HealthSample, HostSample, RankRecord, StepTimes, ThreadTimes
from rankscope.records.rows import HealthRow
from rankscope.trace.files.load import LoadResult


def record(rank: int, window: int = 0, **more) -> RankRecord:
    base = {"local_rank": 0, "world_size": 2, "host": "node-0", "pid": 1, "attempt": 0, "device": "H100"}
    return RankRecord(rank=rank, window=window, **{**base, **more})


def gpu(**values) -> HealthSample:
    return HealthSample(time_ns=0, device="GPU-1", **values)


def test_nothing_sampled_gives_no_row() -> None:
    assert health_rows([record(0), record(1)]) == []


def test_a_device_over_two_windows() -> None:
    hot = ["power cap", "thermal slowdown (software)"]
    windows = [
        [
            gpu(sm_mhz=1100, sm_max_mhz=1980, temperature_c=80, pcie_generation=5, pcie_replays=10, throttle=hot),
            gpu(sm_mhz=1200, sm_max_mhz=1980, temperature_c=85, pcie_generation=1, pcie_replays=12, throttle=hot[:1]),
        ],
        [
            gpu(sm_mhz=1900, sm_max_mhz=1980, temperature_c=70, ecc_uncorrected=0, pcie_replays=50, power_w=400.5),
            gpu(sm_mhz=1000, temperature_c=75, ecc_uncorrected=2, pcie_replays=51, throttle=hot[:1]),
        ],
    ]
    (row,) = health_rows([record(1, w, health=samples) for w, samples in enumerate(windows)])
    assert row == HealthRow(
        rank=1, host="node-0", device="H100", samples=4,
        sm_mhz=1150.0, sm_max_mhz=1980.0, power_w=400.5, temperature_c=85.0,
        throttle={"power cap": 75.0, "thermal slowdown (software)": 25.0},
        ecc_uncorrected=2, pcie_generation=5, pcie_replays=2 + 1,
    )  # fmt: skip


def test_a_host_over_two_windows() -> None:
    def sample(periods, throttled, ms, load, memory) -> HostSample:
        return HostSample(
            time_ns=0, cpus=4.0, quota_periods=periods, throttled_periods=throttled, throttled_ms=ms,
            load_1m=load, memory_available_bytes=memory, pressure_cpu_pct=load,
        )  # fmt: skip

    first = [
        sample(1000, 500, 9e6, 1.0, 900),
        sample(1010, 503, 9e6 + 40, 3.0, 700),
        sample(1030, 505, 9e6 + 90, 2, 800),
    ]
    second = [sample(2000, 600, 9e6 + 500, 1.0, 900), sample(2020, 603, 9e6 + 530, 1.0, 900)]
    (row,) = health_rows([record(0, 0, host_load=first), record(0, 1, host_load=second)])
    # 5 of 30 periods, then 3 of 20; 90 ms, then 30 ms
    assert (row.cpu_throttled_pct, row.cpu_throttled_ms) == (100.0 * 8 / 50, 120.0)
    assert (row.load_1m, row.cpus, row.memory_available_bytes, row.pressure_cpu_pct) == (3.0, 4.0, 700, 3.0)
    assert (row.samples, row.sm_mhz, row.pressure_io_pct) == (0, None, None)


def test_pauses_of_the_collector_are_per_step() -> None:
    windows = [
        record(0, 0, gc_ms=30.0, first_step=10, last_step=15),
        record(0, 1, gc_ms=2.0, first_step=30, last_step=31),
    ]
    (row,) = health_rows([*windows, record(0, 2, status="missing")])
    assert (row.gc_ms_per_step, row.samples) == (32.0 / 8, 0)
    (row,) = health_rows([record(0, gc_ms=5.0)])  # nothing was recorded
    assert row.gc_ms_per_step is None


def test_one_sample_shows_no_growth() -> None:
    lone = HostSample(time_ns=0, quota_periods=100, throttled_periods=50, throttled_ms=1000.0)
    (row,) = health_rows([record(0, host_load=[lone])])
    assert (row.cpu_throttled_ms, row.cpu_throttled_pct) == (None, None)


def test_without_a_quota_there_is_no_share() -> None:
    idle = [HostSample(time_ns=t, quota_periods=0, throttled_periods=0, throttled_ms=0.0) for t in (0, 1)]
    (row,) = health_rows([record(0, host_load=idle)])
    assert (row.cpu_throttled_ms, row.cpu_throttled_pct) == (0.0, None)


def test_a_run_s_health_reaches_the_report_without_any_trace() -> None:
    hot = ["thermal slowdown (hardware)"]
    records = [record(0, health=[gpu(sm_mhz=1755)]), record(1, health=[gpu(sm_mhz=1155, throttle=hot)])]
    manifest = RunManifest(
        run_id="r", argv=[], config={}, versions={}, hosts=["node-0"], world_size=2, attempts=1, exit_code=1,
        windows=[WindowRanks(attempt=0, window=0, world_size=2, records=records)], lives=[],
    )  # fmt: skip
    report = analyze(LoadResult(traces=[], sources=[]), manifest)
    assert [(r.rank, r.sm_mhz) for r in report.health] == [(0, 1755.0), (1, 1155.0)]
    assert [(f.kind, f.ranks) for f in report.findings] == [("gpu_throttled", [1])]
    assert report.errors == []


def test_the_jobs_own_ranks_on_a_device_are_no_others() -> None:
    # two ranks share a device on which three processes run; of the third rank's device the driver says nothing
    def record(rank: int, device: str, processes: int | None) -> RankRecord:
        return RankRecord(
            rank=rank, local_rank=rank, world_size=3, host="node", pid=rank, attempt=0, window=0, device_uuid=device,
            health=[HealthSample(time_ns=1, device=device, processes=processes)],
        )  # fmt: skip

    rows = health_rows([record(0, "a", 3), record(1, "a", 3), record(2, "b", None)])
    assert [row.other_processes for row in rows] == [1, 1, None]


def test_what_others_use_is_neither_the_jobs_processes_nor_its_threads() -> None:
    """Of two CPUs 1.5 are busy for 2 s. The launcher's descendants use 0.5, or else the ranks' threads 0.25 and 1.0."""

    def load(job_ms: float) -> list[HostSample]:
        values = ((0, 100.0, 50.0), (2 * 10**9, 3100.0, 50.0 + job_ms))
        return [HostSample(time_ns=t, cpus=2.0, cpu_busy_ms=busy, job_cpu_ms=job) for t, busy, job in values]

    def threads(ms: float) -> dict:
        thread = ThreadTimes(tid=1, name="python", kind="training", cpu_ms=[ms] * 2, wait_ms=[0.0] * 2)
        return {"threads": [thread], "steps": StepTimes(inside_ms=[20.0] * 2)}

    by_processes = health_rows([record(rank, host_load=load(1000.0), **threads(1.0)) for rank in (0, 1)])
    assert [row.others_cpu_pct for row in by_processes] == [50.0, 50.0]
    by_threads = health_rows(
        [record(rank, host_load=load(1000.0), **threads(ms)) for rank, ms in ((0, 5.0), (1, 20.0))]
    )
    assert [row.others_cpu_pct for row in by_threads] == [12.5, 12.5]
    assert health_rows([record(0, host_load=load(9000.0))])[0].others_cpu_pct == 0.0
    assert health_rows([record(0, host_load=load(1000.0)[:1])])[0].others_cpu_pct is None
