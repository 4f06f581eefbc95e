"""Health of this node's accelerators and of the host, sampled beside the job and never inside a training process."""

from __future__ import annotations

import importlib
import importlib.util
import threading
import time
from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TypeVar

from rankscope.node.health.gpus import AmdGpus, GpuReader, NvidiaGpus
from rankscope.node.health.host import HostReader
from rankscope.node.health.topology import places_of
from rankscope.records.rank import DevicePlace, HealthSample, HostSample, RankRecord

__all__ = ["HealthWatch", "enclosing", "find_gpus", "within"]

Sample = TypeVar("Sample", HealthSample, HostSample)

_KEPT_NS = 600 * 10**9
_NEAR_NS = 5 * 10**9
MOST_SAMPLES = 32
"""Samples of a device, and of the host, in the record of a window: those of a longer window are spread over it. All
records are in run.json, which would have hundreds of megabytes for a thousand ranks otherwise."""
_COUNTED_NS = 60 * 10**9
"""Longest distance, in ns, of a host sample to a window. Host samples include counters, and this process, of the lowest
priority, is delayed on a busy machine."""
_DRIVERS = {"/dev/nvidiactl": "nvidia-ml-py (pip install 'rankscope[nvml]')", "/dev/kfd": "amdsmi, which ROCm ships"}
"""Device file of each vendor's kernel driver -> the Python module that reads its devices."""
_READERS: dict[str, Callable[[object], GpuReader]] = {"pynvml": NvidiaGpus, "amdsmi": AmdGpus}


class HealthWatch:
    """A ring of the samples of the last ten minutes.

    :meth:`begin` gives it a thread, because drivers can be slow, and so can the gathering of traces.

    Args:
        gpus: reads the accelerators; None if there are none or they cannot be read.
        host: reads the host.
        notes: why existing accelerators cannot be read.
        period_s: shortest time between samples, however often :meth:`sample` is called.
        clock_ns: CLOCK_REALTIME, the clock of the traces.
    """

    def __init__(
        self,
        gpus: GpuReader | None,
        host: HostReader,
        notes: Iterable[str] = (),
        *,
        period_s: float = 1.0,
        clock_ns: Callable[[], int] = time.time_ns,
    ) -> None:
        self.notes = list(notes)
        self._gpus = gpus
        self._host = host
        self._period_ns = round(period_s * 1e9)
        self._clock_ns = clock_ns
        self._devices: dict[str, deque[HealthSample]] = {}
        self._hosts: deque[HostSample] = deque()
        self._places: dict[str, DevicePlace] = {}
        self._lock = threading.Lock()
        self._closed = threading.Event()

    @classmethod
    def begin(cls) -> HealthWatch:
        """Return a watch over the devices of this node, which samples until :meth:`close`."""
        watch = cls(None, HostReader())
        watch.sample()  # before the ranks begin: later increases of counters are theirs
        threading.Thread(target=watch._run, name="health", daemon=True).start()
        return watch

    def _run(self) -> None:
        self._gpus, found = find_gpus()  # initialising an idle driver takes seconds
        self.notes += found
        self.locate()
        while not self._closed.is_set():
            self.sample()
            self._closed.wait(self._period_ns / 1e9)
        self._let_go()

    def sample(self) -> None:
        """Read everything once, if it is due. A driver that fails is not called again."""
        now = self._clock_ns()
        if self._hosts and 0 <= now - self._hosts[-1].time_ns < self._period_ns:
            return
        self._keep(self._hosts, self._host.read(now))
        if self._gpus is None:
            return
        try:
            found = self._gpus.read(now)
        except Exception as error:  # a library of a vendor, in a process that must gather traces
            self.notes.append(f"no health of accelerators any more: {error!r}")
            self._let_go()
            return
        for reading in found:
            with self._lock:
                ring = self._devices.setdefault(_identity(reading.device), deque())
            self._keep(ring, reading)

    def locate(self) -> None:
        """Find where the devices sit. A driver that fails is not called again."""
        if self._gpus is None:
            return
        try:
            found = places_of(self._gpus)
        except Exception as error:  # as in sample()
            self.notes.append(f"no place of accelerators: {error!r}")
            return
        self._places = {_identity(device): place for device, place in found.items()}

    def attach(self, record: RankRecord) -> None:
        """Add to a window's record the samples between its first and last clock sample."""
        if len(record.clock) < 2:
            return
        begin, end = record.clock[0].realtime_ns, record.clock[-1].realtime_ns
        if not self._hosts or self._hosts[-1].time_ns < end:
            self._keep(self._hosts, self._host.read(self._clock_ns()))  # counters are evaluated by their difference
        record.health = spread(self.between(begin, end, record.device_uuid))
        record.place = self._places.get(_identity(record.device_uuid or ""))
        record.host_load = spread(self.host_between(begin, end))

    def between(self, begin_ns: int, end_ns: int, device: str | None) -> list[HealthSample]:
        """Return samples of a device (UUID, or PCI address on ROCm) in a window, or those just before and after it."""
        with self._lock:
            kept = list(self._devices.get(_identity(device), ())) if device else []
        return within(kept, begin_ns, end_ns)

    def host_between(self, begin_ns: int, end_ns: int) -> list[HostSample]:
        """Return samples of the host that enclose a window, since its counters are evaluated by their difference."""
        with self._lock:
            kept = list(self._hosts)
        return enclosing(kept, begin_ns, end_ns)

    def close(self) -> None:
        """End the thread; the samples remain available."""
        self._closed.set()

    def _let_go(self) -> None:
        gpus, self._gpus = self._gpus, None
        if gpus is not None:
            gpus.close()

    def _keep(self, ring: deque[Sample], reading: Sample) -> None:
        with self._lock:
            ring.append(reading)
            while ring[0].time_ns < reading.time_ns - _KEPT_NS:
                ring.popleft()


def find_gpus() -> tuple[GpuReader | None, list[str]]:
    """Return a reader for the first vendor whose library works, and notes on accelerators that cannot be read."""
    failed = []
    for name, reader in _READERS.items():
        if importlib.util.find_spec(name) is not None:
            try:
                return reader(importlib.import_module(name)), []
            except Exception as error:  # a module without its driver; each vendor has its own errors
                failed.append(f"{name}: {error}")
    present = [module for device, module in _DRIVERS.items() if Path(device).exists()]
    if not present:
        return None, []
    why = "; ".join(failed) or f"needs {' or '.join(present)}"
    return None, [f"no health of accelerators: {why}"]


def spread(ordered: list[Sample], most: int = MOST_SAMPLES) -> list[Sample]:
    """Return at most so many samples, evenly spread, with the first and the last, from which counters are evaluated."""
    last = len(ordered) - 1
    return ordered if last < most else [ordered[round(n * last / (most - 1))] for n in range(most)]


def within(ordered: list[Sample], begin_ns: int, end_ns: int) -> list[Sample]:
    """Return samples in ``[begin_ns, end_ns]``; if there are none, the nearest on either side, at most 5 s away."""
    before, inside, after = _split(ordered, begin_ns, end_ns)
    return inside or before + after


def enclosing(ordered: list[Sample], begin_ns: int, end_ns: int) -> list[Sample]:
    """Return samples in ``[begin_ns, end_ns]`` and the nearest on either side, at most a minute away."""
    before, inside, after = _split(ordered, begin_ns, end_ns, _COUNTED_NS)
    return before + inside + after


def _split(
    ordered: list[Sample], begin_ns: int, end_ns: int, near_ns: int = _NEAR_NS
) -> tuple[list[Sample], list[Sample], list[Sample]]:
    times = [s.time_ns for s in ordered]
    first, last = bisect_left(times, begin_ns), bisect_right(times, end_ns)
    before = [s for s in ordered[max(first - 1, 0) : first] if begin_ns - s.time_ns <= near_ns]
    after = [s for s in ordered[last : last + 1] if s.time_ns - end_ns <= near_ns]
    return before, ordered[first:last], after


def _identity(device: str) -> str:
    """Return one name for a device: NVML writes ``GPU-`` before the UUID, PyTorch does not."""
    return device.lower().removeprefix("gpu-")
