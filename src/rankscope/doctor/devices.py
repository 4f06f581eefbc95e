"""Checks of accelerators, of the permission to use CUPTI, and of other profilers."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from rankscope.doctor.base import CheckInput, CheckResult

__all__ = ["accelerators", "cupti", "other_profilers"]

_DEVICES = {"/dev/nvidiactl": "NVIDIA", "/dev/kfd": "AMD (ROCm)", "/dev/dri/renderD128": "a render node (Intel XPU?)"}
_INJECTED = {
    "NSYS_PROFILING_SESSION_ID": "Nsight Systems profiles this shell",
    "CUDA_INJECTION64_PATH": "a library is injected into CUDA",
    "NVTX_INJECTION64_PATH": "a library is injected into NVTX",
    "KINETO_USE_DAEMON": "libkineto is told to listen to a daemon (dynolog)",
    "ROCP_TOOL_LIB": "a tool is injected into ROCm's profiler",
}
_DAEMONS = {"nv-hostengine": "DCGM", "dcgm-exporter": "DCGM's exporter", "dynolog": "dynolog"}


def accelerators(_question: CheckInput, root: Path = Path("/")) -> Iterator[CheckResult]:
    """Report for which accelerators a driver is loaded."""
    found = [name for path, name in _DEVICES.items() if (root / path.lstrip("/")).exists()]
    yield CheckResult("ok", f"accelerators: {', '.join(found)}" if found else "no accelerator: the CPU is recorded")


def cupti(_question: CheckInput, root: Path = Path("/")) -> Iterator[CheckResult]:
    """Report whether this user may use CUPTI, and whether devices are partitioned (MIG)."""
    params = root / "proc/driver/nvidia/params"
    if not params.exists():
        return
    restricted = "RmProfilingAdminOnly: 1" in params.read_text(encoding="utf-8", errors="replace")
    if restricted and os.geteuid() != 0:
        remedy = (
            "only if traces come without kernels: options nvidia NVreg_RestrictProfilingToAdminUsers=0, then reboot"
        )
        yield CheckResult("note", "the driver lets administrators alone read performance counters", remedy)
    else:
        yield CheckResult("ok", "the driver lets this user profile")
    if any((root / "proc/driver/nvidia/capabilities").glob("gpu*/mig/gi*")):
        remedy = "set CUDA_VISIBLE_DEVICES to one MIG instance for each rank"
        text = "a device is cut in parts (MIG); clocks and power are those of the whole device"
        yield CheckResult("note", text, remedy)


def other_profilers(_question: CheckInput, proc: Path = Path("/proc")) -> Iterator[CheckResult]:
    """Report other profilers, because CUPTI can be used by one tool at a time."""
    quiet = True
    for name, text in _INJECTED.items():
        if os.environ.get(name):
            quiet = False
            remedy = f"unset {name}, or let that tool record: -S capture.backend=cuda_profiler"
            yield CheckResult("note", f"{text} ({name})", remedy)
    seen = {_text(comm) for comm in proc.glob("[0-9]*/comm")}
    for name, tool in _DAEMONS.items():
        if name[:15] in seen:  # the kernel truncates names to 15 characters
            quiet = False
            remedy = (
                "dcgmi profile --pause while a job is recorded" if "DCGM" in tool else "stop it if traces are empty"
            )
            yield CheckResult("note", f"{tool} runs here and may hold CUPTI", remedy)
    if quiet:
        yield CheckResult("ok", "no other profiler is seen")


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:  # the process has just ended
        return ""
