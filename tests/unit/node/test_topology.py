"""Where a device sits, from a sysfs made by hand and a driver that answers what was written for it."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from rankscope.node.health.gpus import NvidiaGpus
from rankscope.node.health.host import HostReader
from rankscope.node.health.sampler import HealthWatch
from rankscope.node.health.topology import place_of, places_of
from rankscope.records.codec import from_json, to_json
from rankscope.records.rank import ClockSample, DevicePlace, RankRecord

FIRST, SECOND = "0000:18:00.0", "0001:9a:00.0"
TREE = {
    # address -> PCI bridges above it, NUMA node
    FIRST: ("pci0000:16/0000:16:01.0", 0),
    "0000:19:00.0": ("pci0000:16/0000:16:01.0", 0),  # an adapter at the same switch
    "0000:2a:00.0": ("pci0000:16/0000:16:02.0", 0),  # one at another port of the host bridge
    SECOND: ("pci0001:98", 1),
    "0000:ee:00.0": ("pci0000:ec", -1),  # nothing else is at its bridge
}
ADAPTERS = {"mlx5_0": "0000:19:00.0", "mlx5_1": "0000:2a:00.0"}


@pytest.fixture
def sysfs(tmp_path: Path) -> Path:
    for folder in ("bus/pci/devices", "class/infiniband"):
        (tmp_path / folder).mkdir(parents=True)
    for address, (above, node) in TREE.items():
        device = tmp_path / "devices" / above / address
        device.mkdir(parents=True)
        (device / "numa_node").write_text(f"{node}\n")
        (tmp_path / "bus/pci/devices" / address).symlink_to(device)
    for name, address in ADAPTERS.items():
        (tmp_path / "class/infiniband" / name).mkdir()
        (tmp_path / "class/infiniband" / name / "device").symlink_to(tmp_path / "bus/pci/devices" / address)
    return tmp_path


def test_numa_node_and_the_nearest_adapter(sysfs: Path) -> None:
    assert place_of(FIRST, sysfs) == DevicePlace(numa=0, nics=["mlx5_0"])
    assert place_of(SECOND, sysfs) == DevicePlace(numa=1)  # its host bridge has no adapter
    assert place_of("0000:ee:00.0", sysfs) == DevicePlace()
    assert place_of("0000:ff:00.0", sysfs) == DevicePlace()  # no such device


def test_adapters_that_are_equally_near_are_all_told(sysfs: Path) -> None:
    (sysfs / "class/infiniband/mlx5_2").mkdir()
    (sysfs / "class/infiniband/mlx5_2/device").symlink_to(sysfs / "bus/pci/devices/0000:19:00.0")
    assert place_of(FIRST, sysfs).nics == ["mlx5_0", "mlx5_2"]


def driver(**changes) -> SimpleNamespace:
    """Three devices; NVLink joins the first two, and the third refuses to say."""

    def joined(one: int, other: int, kind: int) -> int:
        assert kind == 2
        if 2 in (one, other):
            raise RuntimeError("Not Supported")
        return 0

    known = {
        "nvmlInit": lambda: None,
        "nvmlDeviceGetCount": lambda: 3,
        "nvmlDeviceGetHandleByIndex": lambda index: index,
        "nvmlDeviceGetUUID": lambda gpu: f"GPU-{gpu}",
        "nvmlDeviceGetPciInfo": lambda gpu: SimpleNamespace(
            busId=[b"00000000:18:00.0", "00000001:9A:00.0", b"00000000:FF:00.0"][gpu]
        ),
        "nvmlDeviceGetP2PStatus": joined,
        "NVML_P2P_CAPS_INDEX_NVLINK": 2,
        "NVML_P2P_STATUS_OK": 0,
    }
    return SimpleNamespace(**{**known, **changes})


def test_places_of_all_devices(sysfs: Path) -> None:
    gpus = NvidiaGpus(driver())
    assert gpus.addresses() == {"GPU-0": FIRST, "GPU-1": SECOND, "GPU-2": "0000:ff:00.0"}
    assert places_of(gpus, sysfs) == {
        "GPU-0": DevicePlace(numa=0, nics=["mlx5_0"], nvlink=["GPU-1"]),
        "GPU-1": DevicePlace(numa=1, nvlink=["GPU-0"]),
        "GPU-2": DevicePlace(),
    }
    old = SimpleNamespace(**{k: v for k, v in vars(driver()).items() if "P2P" not in k and "PciInfo" not in k})
    assert places_of(NvidiaGpus(old), sysfs) == {}


def test_a_record_gets_the_place_of_its_device(sysfs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rankscope.node.health.sampler.places_of", lambda gpus: places_of(gpus, sysfs))
    watch = HealthWatch(NvidiaGpus(driver()), HostReader(sysfs / "proc", sysfs / "cgroup"), clock_ns=lambda: 0)
    watch.locate()
    record = RankRecord(rank=0, local_rank=0, world_size=1, host="h", pid=1, attempt=0, window=0, device_uuid="0")
    record.clock = [ClockSample(realtime_ns=0, monotonic_ns=0)] * 2
    watch.attach(record)
    assert record.place == DevicePlace(numa=0, nics=["mlx5_0"], nvlink=["GPU-1"])
    assert from_json(RankRecord, to_json(record)) == record
    record.device_uuid = None
    watch.attach(record)
    assert record.place is None


def test_a_driver_that_fails_there_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def fails(_: object) -> None:
        raise RuntimeError("no")

    monkeypatch.setattr("rankscope.node.health.sampler.places_of", fails)
    watch = HealthWatch(NvidiaGpus(driver()), HostReader(tmp_path, tmp_path), clock_ns=lambda: 0)
    watch.locate()
    assert watch.notes == ["no place of accelerators: RuntimeError('no')"]
