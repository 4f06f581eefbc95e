from __future__ import annotations

import os
import threading
import time
from types import SimpleNamespace

import pytest

from rankscope.node.health import sampler as health
from rankscope.node.health.gpus import AmdGpus, NvidiaGpus, throttle_reasons
from rankscope.node.health.host import HostReader
from rankscope.node.health.sampler import HealthWatch, enclosing, within
from rankscope.records.codec import from_json, to_json
from rankscope.records.rank import ClockSample, HealthSample, HostSample, RankRecord
from rankscope.rundir.record_files import BYTES_PER_RECORD

SECOND = 10**9
UUID = "GPU-8f1b7a52-1d2c-4c8e-9a55-0123456789ab"


class NVMLError(Exception):
    pass


def _refuse(*_):
    raise NVMLError("Not Supported")


def fake_nvml(**changes) -> SimpleNamespace:
    """The part of pynvml that is used, for one device that counts no ECC errors."""
    answers = {
        "Init": lambda: None,
        "Shutdown": lambda: None,
        "DeviceGetCount": lambda: 1,
        "DeviceGetHandleByIndex": lambda index: f"handle {index}",
        "DeviceGetUUID": lambda gpu: UUID.encode(),  # str in new versions
        "DeviceGetClockInfo": lambda gpu, kind: {1: 1155, 2: 2619}[kind],
        "DeviceGetMaxClockInfo": lambda gpu, kind: {1: 1980}[kind],
        "DeviceGetPowerUsage": lambda gpu: 698_500,
        "DeviceGetEnforcedPowerLimit": lambda gpu: 700_000,
        "DeviceGetTemperature": lambda gpu, sensor: {0: 87}[sensor],
        "DeviceGetUtilizationRates": lambda gpu: SimpleNamespace(gpu=99, memory=41),
        "DeviceGetCurrentClocksEventReasons": lambda gpu: 0x24,
        "DeviceGetTotalEccErrors": _refuse,
        "DeviceGetCurrPcieLinkGeneration": lambda gpu: 4,
        "DeviceGetMaxPcieLinkGeneration": lambda gpu: 5,
        "DeviceGetCurrPcieLinkWidth": lambda gpu: 8,
        "DeviceGetMaxPcieLinkWidth": lambda gpu: 16,
        "DeviceGetPcieReplayCounter": lambda gpu: 3,
        "DeviceGetComputeRunningProcesses": lambda gpu: [SimpleNamespace(pid=41), SimpleNamespace(pid=42)],
    }
    constants = {
        "NVML_CLOCK_SM": 1, "NVML_CLOCK_MEM": 2, "NVML_TEMPERATURE_GPU": 0,
        "NVML_MEMORY_ERROR_TYPE_CORRECTED": 0, "NVML_MEMORY_ERROR_TYPE_UNCORRECTED": 1, "NVML_VOLATILE_ECC": 0,
    }  # fmt: skip
    return SimpleNamespace(**constants, **{f"nvml{name}": f for name, f in {**answers, **changes}.items()})


class FakeAmd:
    """The part of amdsmi that is used. It writes N/A for what a device does not have."""

    AmdSmiClkType = SimpleNamespace(GFX="gfx", MEM="mem")
    AmdSmiTemperatureType = SimpleNamespace(HOTSPOT="hotspot")
    AmdSmiTemperatureMetric = SimpleNamespace(CURRENT="current")

    def amdsmi_init(self):
        pass

    def amdsmi_shut_down(self):
        pass

    def amdsmi_get_processor_handles(self):
        return ["handle"]

    def amdsmi_get_gpu_device_bdf(self, handle):
        return "0000:0c:00.0"

    def amdsmi_get_clock_info(self, handle, kind):
        return {"gfx": {"clk": 1300, "max_clk": 2100}, "mem": {"clk": 1300, "max_clk": 1300}}[kind]

    def amdsmi_get_power_info(self, handle):
        return {"current_socket_power": 750, "average_socket_power": "N/A"}

    def amdsmi_get_power_cap_info(self, handle):
        return {"power_cap": 750_000_000}

    def amdsmi_get_gpu_total_ecc_count(self, handle):
        return {"correctable_count": 1, "uncorrectable_count": 0}

    def amdsmi_get_pcie_info(self, handle):
        return {
            "pcie_static": {"max_pcie_width": 16},
            "pcie_metric": {"pcie_width": 16, "pcie_replay_count": "N/A"},
        }

    def amdsmi_get_violation_status(self, handle):
        return {"active_ppt_pwr": True, "active_socket_thrm": False, "active_hbm_thrm": "N/A"}

    def amdsmi_get_temp_metric(self, handle, sensor, metric):
        return 92

    def amdsmi_get_gpu_activity(self, handle):
        return {"gfx_activity": 100}


@pytest.mark.parametrize(
    ("mask", "words"),
    [
        (0, []),
        (0x1, ["idle"]),
        (0x4, ["power cap"]),
        (0x60, ["thermal slowdown (software)", "thermal slowdown (hardware)"]),
        (0x88, ["hardware slowdown", "power brake"]),
        (0x10, ["sync boost"]),
        (1 << 40, ["reason 0x10000000000"]),
    ],
)
def test_the_reasons_of_nvml_become_words(mask, words) -> None:
    assert throttle_reasons(mask) == words


def test_an_nvidia_device_is_read_in_the_record_s_units() -> None:
    (found,) = NvidiaGpus(fake_nvml()).read(7)
    assert found == HealthSample(
        time_ns=7, device=UUID, sm_mhz=1155, sm_max_mhz=1980, memory_mhz=2619, power_w=698.5, power_limit_w=700.0,
        temperature_c=87, utilisation_pct=99, throttle=["power cap", "thermal slowdown (software)"],
        ecc_corrected=None, ecc_uncorrected=None,
        pcie_generation=4, pcie_generation_max=5, pcie_width=8, pcie_width_max=16, pcie_replays=3, processes=2,
    )  # fmt: skip


def test_drivers_before_535_have_another_name_for_the_reasons() -> None:
    old = fake_nvml(DeviceGetCurrentClocksThrottleReasons=lambda gpu: 0x8)
    del old.nvmlDeviceGetCurrentClocksEventReasons
    assert NvidiaGpus(old).read(0)[0].throttle == ["hardware slowdown"]


def test_an_amd_device_gives_the_same_record() -> None:
    (found,) = AmdGpus(FakeAmd()).read(7)
    assert found == HealthSample(
        time_ns=7, device="0000:0c:00.0", sm_mhz=1300, sm_max_mhz=2100, memory_mhz=1300, power_w=750,
        power_limit_w=750.0, temperature_c=92, utilisation_pct=100, throttle=["power cap"],
        ecc_corrected=1, ecc_uncorrected=0, pcie_width=16, pcie_width_max=16,
    )  # fmt: skip


def _write(root, files) -> None:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


PROC = {
    "proc/loadavg": "12.50 8.00 4.00 3/1200 4711\n",
    "proc/meminfo": "MemTotal:       65536000 kB\nMemFree:         100 kB\nMemAvailable:    2048 kB\n",
    "proc/pressure/cpu": "some avg10=8.52 avg60=13.49 avg300=6.78 total=2086102397\nfull avg10=1.00 avg60=0 total=0\n",
    "proc/pressure/memory": "some avg10=0.00 avg60=0.00 avg300=0.00 total=0\n",
}


def _host(tmp_path, files) -> HostSample:
    _write(tmp_path, files)
    return HostReader(tmp_path / "proc", tmp_path / "cgroup").read(7)


def test_a_host_under_cgroup_v2(tmp_path) -> None:
    # the quota stands on an ancestor, which then counts the throttling; the pod above allows more
    found = _host(
        tmp_path,
        {
            **PROC,
            "proc/self/cgroup": "0::/pod/container/job\n",
            "cgroup/cpu.stat": "usage_usec 1\n",
            "cgroup/pod/cpu.max": "800000 100000\n",
            "cgroup/pod/cpu.stat": "nr_periods 9\nnr_throttled 0\nthrottled_usec 0\n",
            "cgroup/pod/container/cpu.max": "50000 100000\n",
            "cgroup/pod/container/cpu.stat": "usage_usec 5\nnr_periods 400\nnr_throttled 120\nthrottled_usec 2500000\n",
            "cgroup/pod/container/job/cpu.max": "max 100000\n",
            "cgroup/pod/container/job/cpu.stat": "nr_periods 0\nnr_throttled 0\nthrottled_usec 0\n",
        },
    )
    assert found == HostSample(
        time_ns=7, load_1m=12.5, cpus=0.5, quota_periods=400, throttled_periods=120, throttled_ms=2500.0,
        memory_available_bytes=2048 * 1024,
        pressure_cpu_pct=8.52, pressure_memory_pct=0.0, pressure_io_pct=None, cpu_waited_ms=2086102.397,
    )  # fmt: skip


def test_a_host_under_cgroup_v1(tmp_path) -> None:
    # a container sees its own group as the root of the mount, but /proc names the path on the host
    found = _host(
        tmp_path,
        {
            **PROC,
            "proc/self/cgroup": "5:memory:/docker/abc\n4:cpu,cpuacct:/docker/abc\n0::/docker/abc\n",
            "cgroup/cpu,cpuacct/cpu.cfs_quota_us": "25000\n",
            "cgroup/cpu,cpuacct/cpu.cfs_period_us": "100000\n",
            "cgroup/cpu,cpuacct/cpu.stat": "nr_periods 10\nnr_throttled 4\nthrottled_time 1500000\n",
        },
    )
    assert (found.cpus, found.quota_periods, found.throttled_periods, found.throttled_ms) == (0.25, 10, 4, 1.5)


def test_without_quota_the_affinity_counts(tmp_path) -> None:
    v1 = {
        "proc/self/cgroup": "4:cpu:/\n",
        "cgroup/cpu/cpu.cfs_quota_us": "-1\n",
        "cgroup/cpu/cpu.cfs_period_us": "100000\n",
        "cgroup/cpu/cpu.stat": "nr_periods 0\nnr_throttled 0\nthrottled_time 0\n",
    }
    found = _host(tmp_path, v1)
    assert (found.cpus, found.throttled_ms) == (len(os.sched_getaffinity(0)), 0.0)


def test_a_host_without_statistics(tmp_path) -> None:
    cpus = float(len(os.sched_getaffinity(0)))
    assert _host(tmp_path, {}) == HostSample(time_ns=7, cpus=cpus)


def _at(*seconds: float) -> list[HostSample]:
    return [HostSample(time_ns=round(s * SECOND)) for s in seconds]


def _seconds(found) -> list[float]:
    return [s.time_ns / SECOND for s in found]


@pytest.mark.parametrize(
    ("begin", "end", "inside", "around"),
    [
        (10, 12, [10, 11, 12], [9, 10, 11, 12, 13]),  # bounds belong to the window
        (10.2, 10.8, [10, 11], [10, 11]),  # nothing within: the nearest on either side
        (20, 21, [], [13]),  # the nearest is 7 s away: near enough for what is counted
        (80, 81, [], []),  # 67 s
        (17.5, 18, [13], [13]),  # 4.5 s
        (1, 4, [9], [9]),
    ],
)
def test_samples_of_a_window(begin, end, inside, around) -> None:
    kept = _at(9, 10, 11, 12, 13)
    begin_ns, end_ns = round(begin * SECOND), round(end * SECOND)
    assert _seconds(within(kept, begin_ns, end_ns)) == inside
    assert _seconds(enclosing(kept, begin_ns, end_ns)) == around


class Clock:
    def __init__(self) -> None:
        self.now = 1_700_000_000 * SECOND

    def __call__(self) -> int:
        return self.now


def _watch(tmp_path, clock, gpus=None) -> HealthWatch:
    return HealthWatch(gpus, HostReader(tmp_path / "proc", tmp_path / "cgroup"), clock_ns=clock)


def test_a_watch_keeps_its_period_and_ten_minutes(tmp_path) -> None:
    clock = Clock()
    watch, start = _watch(tmp_path, clock, NvidiaGpus(fake_nvml())), clock.now
    for _ in range(4 * 700):  # 700 s, asked every 0.25 s
        watch.sample()
        clock.now += SECOND // 4
    everything = watch.between(0, clock.now, UUID)
    assert [s.time_ns for s in everything] == [start + i * SECOND for i in range(99, 700)]
    assert len(watch.host_between(0, clock.now)) == 601


def test_a_device_is_found_by_the_uuid_as_pytorch_writes_it(tmp_path) -> None:
    clock = Clock()
    watch = _watch(tmp_path, clock, NvidiaGpus(fake_nvml()))
    watch.sample()
    assert [s.device for s in watch.between(0, clock.now, UUID.removeprefix("GPU-"))] == [UUID]
    assert watch.between(0, clock.now, "GPU-another") == []
    assert watch.between(0, clock.now, None) == []


def test_a_record_gets_the_samples_of_its_window(tmp_path) -> None:
    clock = Clock()
    watch, start = _watch(tmp_path, clock, NvidiaGpus(fake_nvml())), clock.now
    for _ in range(10):
        watch.sample()
        clock.now += SECOND
    record = RankRecord(rank=0, local_rank=0, world_size=1, host="h", pid=1, attempt=0, window=0, device_uuid=UUID)
    watch.attach(record)  # its window never closed
    assert (record.health, record.host_load) == ([], [])
    record.clock = [ClockSample(realtime_ns=start + round(s * SECOND), monotonic_ns=0) for s in (2.5, 3, 5.5)]
    watch.attach(record)
    assert [(s.time_ns - start) // SECOND for s in record.health] == [3, 4, 5]
    assert [(s.time_ns - start) // SECOND for s in record.host_load] == [2, 3, 4, 5, 6]
    assert from_json(RankRecord, to_json(record)) == record


def test_the_record_of_a_long_window_stays_small(tmp_path) -> None:
    """A window of ten minutes has 600 samples of each. Of those kept are the first and the last, and as many in each
    half. All records of a run are in run.json, whose limit they must not reach."""
    clock = Clock()
    watch, start = _watch(tmp_path, clock, NvidiaGpus(fake_nvml())), clock.now
    for _ in range(600):
        watch.sample()
        clock.now += SECOND
    record = RankRecord(rank=0, local_rank=0, world_size=1, host="h", pid=1, attempt=0, window=0, device_uuid=UUID)
    record.clock = [ClockSample(realtime_ns=start + s * SECOND, monotonic_ns=0) for s in (0, 599)]
    watch.attach(record)
    for samples in (record.health, record.host_load):
        seconds = [(s.time_ns - start) // SECOND for s in samples]
        assert (len(seconds), seconds[0], seconds[-1]) == (health.MOST_SAMPLES, 0, 599)
        assert sum(second < 300 for second in seconds) == health.MOST_SAMPLES // 2
    full = [HostSample(**{**dict.fromkeys(HostSample.__annotations__, 123456789.123), "time_ns": start})]
    record.host_load = full * health.MOST_SAMPLES
    assert len(to_json(record)) < BYTES_PER_RECORD


def test_a_driver_that_breaks_is_left_alone(tmp_path) -> None:
    class Breaks(NvidiaGpus):
        reads = 0

        def read(self, time_ns):
            self.reads += 1
            if self.reads == 2:
                raise RuntimeError("GPU is lost")
            return super().read(time_ns)

    clock, shut = Clock(), []
    gpus = Breaks(fake_nvml(Shutdown=lambda: shut.append(True)))
    watch = _watch(tmp_path, clock, gpus)
    for _ in range(4):
        watch.sample()
        clock.now += SECOND
    assert gpus.reads == 2
    assert shut == [True]
    assert watch.notes == ["no health of accelerators any more: RuntimeError('GPU is lost')"]
    assert len(watch.between(0, clock.now, UUID)) == 1
    assert len(watch.host_between(0, clock.now)) == 4


def _finding(monkeypatch, tmp_path, **modules):
    monkeypatch.setattr(health.importlib.util, "find_spec", modules.get)
    monkeypatch.setattr(health.importlib, "import_module", modules.get)
    monkeypatch.setattr(health, "_DRIVERS", {str(tmp_path / "nvidiactl"): "nvidia-ml-py"})
    return health.find_gpus()


def test_accelerators_that_nothing_can_read_are_reported(monkeypatch, tmp_path) -> None:
    assert _finding(monkeypatch, tmp_path) == (None, [])  # no device, no word
    (tmp_path / "nvidiactl").touch()
    assert _finding(monkeypatch, tmp_path) == (None, ["no health of accelerators: needs nvidia-ml-py"])


def test_a_library_without_its_driver_is_reported(monkeypatch, tmp_path) -> None:
    def refuse():
        raise NVMLError("Driver Not Loaded")

    (tmp_path / "nvidiactl").touch()
    found = _finding(monkeypatch, tmp_path, pynvml=fake_nvml(Init=refuse))
    assert found == (None, ["no health of accelerators: pynvml: Driver Not Loaded"])


def test_the_library_that_answers_is_used(monkeypatch, tmp_path) -> None:
    gpus, notes = _finding(monkeypatch, tmp_path, pynvml=fake_nvml(Init=_refuse), amdsmi=FakeAmd())
    assert isinstance(gpus, AmdGpus)
    assert notes == []


def test_a_watch_with_a_thread_samples_until_it_is_closed(monkeypatch) -> None:
    shut = threading.Event()
    nvml = fake_nvml(Shutdown=shut.set)
    monkeypatch.setattr(health, "find_gpus", lambda: (NvidiaGpus(nvml), ["a note"]))
    begun = time.time_ns()
    watch = HealthWatch.begin()
    while not watch.between(begun, time.time_ns(), UUID):  # the suite's timeout bounds this
        time.sleep(0.01)
    assert watch.host_between(begun, time.time_ns())
    assert watch.notes == ["a note"]
    watch.close()
    assert shut.wait(60)
    assert watch.between(begun, time.time_ns(), UUID)
