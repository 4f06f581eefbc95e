"""State of this node's accelerators from their drivers: NVML through nvidia-ml-py, AMD SMI through amdsmi.

Both modules are optional and are passed in, so that tests can pass their own. A value that the driver does not provide
is None.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from rankscope.records.rank import HealthSample

__all__ = ["THROTTLE_REASONS", "AmdGpus", "GpuReader", "NvidiaGpus", "throttle_reasons"]

THROTTLE_REASONS = {
    0x001: "idle",
    0x002: "clocks set by an administrator",
    0x004: "power cap",
    0x008: "hardware slowdown",
    0x010: "sync boost",
    0x020: "thermal slowdown (software)",
    0x040: "thermal slowdown (hardware)",
    0x080: "power brake",
    0x100: "display clocks",
    0x200: "board limit",
    0x400: "reliability limit",
}
"""``nvmlClocksEventReasons`` (before driver 535 ``nvmlClocksThrottleReasons``) of nvml.h, in words."""

_AMD_REASONS = {
    "active_prochot_thrm": "thermal slowdown (hardware)",
    "active_socket_thrm": "thermal slowdown (hardware)",
    "active_vr_thrm": "thermal slowdown (hardware)",
    "active_hbm_thrm": "thermal slowdown (hardware)",
    "active_ppt_pwr": "power cap",
}


class GpuReader(Protocol):
    """Reads all accelerators of this node."""

    def read(self, time_ns: int) -> list[HealthSample]:
        """Return one sample per device."""

    def addresses(self) -> dict[str, str]:
        """Return device -> PCI address, as sysfs writes it."""

    def joined(self) -> dict[str, list[str]]:
        """Return device -> devices of this node that it reaches over a fast link of the vendor's own."""

    def close(self) -> None:
        """Release the driver."""


def throttle_reasons(mask: int) -> list[str]:
    """Convert NVML's bit mask to words; bits without a name keep their number."""
    bits = [1 << i for i in range(mask.bit_length()) if mask >> i & 1]
    return [THROTTLE_REASONS.get(bit, f"reason {bit:#x}") for bit in bits]


def _count(found: Any) -> int | None:
    return len(found) if isinstance(found, (list, tuple)) else None


def _ask(function: Callable[..., Any] | None, *arguments: Any) -> Any:
    """Return the answer of a driver's library; None if it raises its own error or lacks the symbol."""
    try:
        return None if function is None else function(*arguments)
    except Exception:  # NVMLError or AmdSmiException, which are not imported: the modules are optional
        return None


class NvidiaGpus:
    """NVML. Creation raises what ``nvmlInit`` raises, for instance without a driver."""

    def __init__(self, nvml: Any) -> None:
        nvml.nvmlInit()
        self._nvml = nvml
        self._handles = {}
        for index in range(nvml.nvmlDeviceGetCount()):
            handle = _ask(nvml.nvmlDeviceGetHandleByIndex, index)
            uuid = None if handle is None else _ask(nvml.nvmlDeviceGetUUID, handle)
            if uuid is not None:
                self._handles[uuid if isinstance(uuid, str) else uuid.decode()] = handle
        self._reasons = getattr(nvml, "nvmlDeviceGetCurrentClocksEventReasons", None) or getattr(
            nvml, "nvmlDeviceGetCurrentClocksThrottleReasons", None
        )

    def read(self, time_ns: int) -> list[HealthSample]:
        """Return one sample per device; NVML reports power in mW, everything else in the units of the record."""
        return [self._sample(uuid, handle, time_ns) for uuid, handle in self._handles.items()]

    def _sample(self, uuid: str, gpu: Any, time_ns: int) -> HealthSample:
        nvml = self._nvml
        mask = None if self._reasons is None else _ask(self._reasons, gpu)
        used = _ask(nvml.nvmlDeviceGetUtilizationRates, gpu)
        return HealthSample(
            time_ns=time_ns,
            device=uuid,
            sm_mhz=_ask(nvml.nvmlDeviceGetClockInfo, gpu, nvml.NVML_CLOCK_SM),
            sm_max_mhz=_ask(nvml.nvmlDeviceGetMaxClockInfo, gpu, nvml.NVML_CLOCK_SM),
            memory_mhz=_ask(nvml.nvmlDeviceGetClockInfo, gpu, nvml.NVML_CLOCK_MEM),
            power_w=_thousandth(_ask(nvml.nvmlDeviceGetPowerUsage, gpu)),
            power_limit_w=_thousandth(_ask(nvml.nvmlDeviceGetEnforcedPowerLimit, gpu)),
            temperature_c=_ask(nvml.nvmlDeviceGetTemperature, gpu, nvml.NVML_TEMPERATURE_GPU),
            utilisation_pct=None if used is None else int(used.gpu),
            throttle=throttle_reasons(mask or 0),
            ecc_corrected=_ask(
                nvml.nvmlDeviceGetTotalEccErrors, gpu, nvml.NVML_MEMORY_ERROR_TYPE_CORRECTED, nvml.NVML_VOLATILE_ECC
            ),
            ecc_uncorrected=_ask(
                nvml.nvmlDeviceGetTotalEccErrors, gpu, nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, nvml.NVML_VOLATILE_ECC
            ),
            pcie_generation=_ask(nvml.nvmlDeviceGetCurrPcieLinkGeneration, gpu),
            pcie_generation_max=_ask(nvml.nvmlDeviceGetMaxPcieLinkGeneration, gpu),
            pcie_width=_ask(nvml.nvmlDeviceGetCurrPcieLinkWidth, gpu),
            pcie_width_max=_ask(nvml.nvmlDeviceGetMaxPcieLinkWidth, gpu),
            pcie_replays=_ask(nvml.nvmlDeviceGetPcieReplayCounter, gpu),
            processes=_count(_ask(getattr(nvml, "nvmlDeviceGetComputeRunningProcesses", None), gpu)),
        )

    def addresses(self) -> dict[str, str]:
        """Return UUID -> PCI address. NVML writes the domain with eight digits, sysfs with four at least."""
        found = {}
        for uuid, gpu in self._handles.items():
            info = _ask(getattr(self._nvml, "nvmlDeviceGetPciInfo", None), gpu)
            if info is not None:
                address = info.busId if isinstance(info.busId, str) else info.busId.decode()
                domain, rest = address.lower().split(":", 1)
                found[uuid] = f"{int(domain, 16):04x}:{rest}"
        return found

    def joined(self) -> dict[str, list[str]]:
        """Return UUID -> UUIDs of the devices that it reaches over NVLink, directly or through switches."""
        status = getattr(self._nvml, "nvmlDeviceGetP2PStatus", None)
        link, fine = (getattr(self._nvml, f"NVML_P2P_{name}", None) for name in ("CAPS_INDEX_NVLINK", "STATUS_OK"))
        if link is None or fine is None:
            return {}
        return {
            uuid: [
                other
                for other, peer in self._handles.items()
                if other != uuid and _ask(status, gpu, peer, link) == fine
            ]
            for uuid, gpu in self._handles.items()
        }

    def close(self) -> None:
        """Shut NVML down."""
        _ask(self._nvml.nvmlShutdown)


class AmdGpus:
    """AMD SMI of ROCm 6.2 and later. A device is identified by its PCI address, which PyTorch knows too."""

    def __init__(self, smi: Any) -> None:
        smi.amdsmi_init()
        self._smi = smi
        self._handles = {}
        for handle in smi.amdsmi_get_processor_handles():
            address = _ask(smi.amdsmi_get_gpu_device_bdf, handle)
            if address is not None:
                self._handles[str(address)] = handle

    def read(self, time_ns: int) -> list[HealthSample]:
        """Return one sample per device."""
        return [self._sample(address, handle, time_ns) for address, handle in self._handles.items()]

    def _sample(self, address: str, gpu: Any, time_ns: int) -> HealthSample:
        smi = self._smi
        clock = _answers(smi.amdsmi_get_clock_info, gpu, smi.AmdSmiClkType.GFX)
        memory = _answers(smi.amdsmi_get_clock_info, gpu, smi.AmdSmiClkType.MEM)
        power = _answers(smi.amdsmi_get_power_info, gpu)
        cap = _number(_answers(smi.amdsmi_get_power_cap_info, gpu).get("power_cap"))
        errors = _answers(smi.amdsmi_get_gpu_total_ecc_count, gpu)
        link = _answers(smi.amdsmi_get_pcie_info, gpu)
        fixed, now = link.get("pcie_static", {}), link.get("pcie_metric", {})
        violated = _answers(getattr(smi, "amdsmi_get_violation_status", None), gpu)
        return HealthSample(
            time_ns=time_ns,
            device=address,
            sm_mhz=_number(clock.get("clk")),
            sm_max_mhz=_number(clock.get("max_clk")),
            memory_mhz=_number(memory.get("clk")),
            power_w=_number(power.get("current_socket_power")) or _number(power.get("average_socket_power")),
            power_limit_w=None if cap is None else cap / 1e6,
            temperature_c=_number(
                _ask(
                    smi.amdsmi_get_temp_metric,
                    gpu,
                    smi.AmdSmiTemperatureType.HOTSPOT,
                    smi.AmdSmiTemperatureMetric.CURRENT,
                )
            ),
            utilisation_pct=_number(_answers(smi.amdsmi_get_gpu_activity, gpu).get("gfx_activity")),
            throttle=sorted({word for key, word in _AMD_REASONS.items() if violated.get(key) is True}),
            ecc_corrected=_number(errors.get("correctable_count")),
            ecc_uncorrected=_number(errors.get("uncorrectable_count")),
            pcie_width=_number(now.get("pcie_width")),
            pcie_width_max=_number(fixed.get("max_pcie_width")),
            pcie_replays=_number(now.get("pcie_replay_count")),
            processes=_count(_ask(getattr(smi, "amdsmi_get_gpu_process_list", None), gpu)),
        )

    def addresses(self) -> dict[str, str]:
        """Return each device's PCI address, which is its name here."""
        return {address: address.lower() for address in self._handles}

    def joined(self) -> dict[str, list[str]]:
        """Return nothing: the links of AMD's devices are not read."""
        return {}

    def close(self) -> None:
        """Shut AMD SMI down."""
        _ask(self._smi.amdsmi_shut_down)


def _thousandth(value: int | None) -> float | None:
    return None if value is None else value / 1000.0


def _answers(function: Callable[..., Any] | None, *arguments: Any) -> dict[str, Any]:
    """Return the dict that AMD SMI returns, empty if it fails."""
    found = None if function is None else _ask(function, *arguments)
    return found if isinstance(found, dict) else {}


def _number(value: Any) -> int | None:
    """Convert a value; AMD SMI writes ``N/A`` for what a device does not have."""
    return int(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None
