"""No straggler: what limits the step of the whole job, in one sentence with the numbers that support it."""

from __future__ import annotations

from dataclasses import dataclass, field

from rankscope.causes.wording import SCENARIO, amount, share, step_time
from rankscope.diagnose.base.memory import fullest, held, size
from rankscope.diagnose.rules.job.host_bound import idle_for_hosts
from rankscope.records.evidence import Evidence
from rankscope.records.report import VerdictKind
from rankscope.records.rows import Efficiency, WorkGroup
from rankscope.statistics.thresholds import LEAST_COST

__all__ = ["Limit", "by_replay", "own_step", "what_limits"]

COMM_SHARE = 20.0
"""Per cent of the step from which on exposed transfers limit the job; the same for waiting for input."""
HOST_SHARE = 30.0
_BOUND_BY_COMPUTE = 100.0 - COMM_SHARE
"""Per cent of the step. All other parts together are less than what would count as bound by communication."""


@dataclass(frozen=True, slots=True)
class Limit:
    """What limits the job."""

    kind: VerdictKind
    sentence: str
    why: list[str] = field(default_factory=list)


def what_limits(evidence: Evidence) -> Limit:
    """Return the largest part of the step other than compute, if one is large, else how much it computes."""
    step = evidence.step_ms or 0.0
    whole = evidence.whole_step_ms
    if not step:
        return Limit("balanced", "Its steps are not known, so neither is what limits them.")
    transfer = 100.0 * evidence.transfer_ms / whole
    waiting = 100.0 * evidence.input_ms / whole
    memory = _memory(evidence, step)
    if memory is not None:
        return memory
    if waiting >= COMM_SHARE and waiting >= max(transfer, evidence.own_host_pct):
        who = "Every rank waits" if len(evidence.ranks) > 1 else "It waits"
        return Limit("balanced", f"{who} for input: {_of(evidence.input_ms, step)}.", [_level(evidence, step)])
    if 100.0 * evidence.pageable_ms >= COMM_SHARE * whole and evidence.pageable_ms >= evidence.transfer_ms:
        held_up = "its host" if len(evidence.ranks) == 1 else "the hosts"
        taken = _of(evidence.pageable_ms, step)
        return Limit(
            "balanced",
            f"Copies to the device from pageable memory hold {held_up} up: {taken}.",
            [_level(evidence, step)],
        )
    if transfer >= COMM_SHARE and evidence.device:
        moving = f"Moving data between ranks takes {amount(evidence.transfer_ms)} of each {step_time(step)} step"
        return Limit("comm_bound", f"{moving}, which no work hides ({share(evidence.transfer_ms, step)}).")
    if evidence.device and evidence.own_host_pct >= HOST_SHARE:
        return Limit("host_bound", _host_sentence(evidence), [*_hosts(evidence), *_python(evidence)])
    return Limit("balanced", _level(evidence, step), [*_beside(evidence), *_work(evidence)])


def own_step(evidence: Evidence, limit: Limit) -> float:
    """Return the step that the limit's sentence refers to, ms: without what recording adds if hosts are the limit."""
    return (evidence.step_ms or 0.0) - (evidence.added_ms if limit.kind == "host_bound" else 0.0)


def _memory(evidence: Evidence, step: float) -> Limit | None:
    """Return memory as the limit: all ranks allocate and free device memory in the step, which costs more than any
    other wait."""
    ms = evidence.allocator_ms
    other = max(evidence.transfer_ms, evidence.input_ms, evidence.own_host_ms / 2)  # the devices are idle for it, too
    if not evidence.device or ms < LEAST_COST * step or ms < other:
        return None
    takes = f"taking and giving back device memory holds every host {_of(ms, step)}"
    row = fullest(evidence.memory)
    if row is None or not row.device_bytes:
        return Limit("memory_bound", f"{takes[:1].upper()}{takes[1:]}.")
    peak = f"rank {row.rank} reserves {size(row.peak_reserved_bytes).removesuffix(' GiB')} of {size(row.device_bytes)}"
    free = f"{size(row.fragmentation_bytes)} of it are not in use when the window ends."
    return Limit("memory_bound", f"Memory is the limit: {peak}, and {takes}.", [*held(row), free])


def _of(ms: float, step: float) -> str:
    return f"{amount(ms)} of each {step_time(step)} step ({share(ms, step)})"


def _host_sentence(evidence: Evidence) -> str:
    step = (evidence.step_ms or 0.0) - evidence.added_ms
    slow = ", because their hosts launch too slowly"
    idle = evidence.own_host_ms
    share = f"{evidence.own_host_pct:.0f} %"
    return f"The devices stand idle {amount(idle)} of each {step_time(step)} step ({share}){slow}."


def _hosts(evidence: Evidence) -> list[str]:
    """Return what recording adds to that, and how much the hosts have to launch."""
    found = [idle_for_hosts(evidence)] if evidence.recording_ms else []
    most = evidence.most_host_ms
    if most is not None and most > 1.1 * evidence.host_ms and not evidence.recording_ms:
        found.append(f"That is the mean over the ranks; most it is {amount(most)}.")
    if evidence.launches and evidence.kernel_us is not None:
        found.append(f"{evidence.launches:,.0f} kernels a step, half of them shorter than {evidence.kernel_us:.1f} µs.")
    return found


def _python(evidence: Evidence) -> list[str]:
    if not evidence.stacks:
        return []
    most = ", ".join(f"{line} {amount(ms)}" for line, ms in evidence.host_lines.items())
    slowed = "Python's stacks were recorded, which slows hosts several times: these times are not the job's."
    return [slowed, *([f"Most Python time a step, by itself: {most}."] if most else [])]


def _level(evidence: Evidence, step: float) -> str:
    what = "devices" if evidence.device else "processors"
    known = evidence.efficiency
    peak = f", at {known.peak_pct:.0f} % of their peak" if known is not None and known.peak_pct else ""
    if evidence.compute_pct >= _BOUND_BY_COMPUTE:
        return f"The {what} compute {evidence.compute_pct:.0f} % of each {step_time(step)} step{peak}."
    copies = 100.0 * evidence.copy_ms / evidence.whole_step_ms
    parts = [
        f"Of each {step_time(step)} step the {what} compute {evidence.compute_pct:.0f} %",
        *([f"communication that nothing hides takes {evidence.exposed_comm_pct:.0f} %"] if evidence.calls else []),
        *([f"copies take {copies:.0f} %"] if copies >= 1.0 else []),
    ]
    return f"{', '.join(parts)}, and {evidence.idle_pct:.0f} % are idle."


def _beside(evidence: Evidence) -> list[str]:
    """State that the devices wait for their hosts, though not enough to be the limit."""
    whole = evidence.whole_step_ms
    return [idle_for_hosts(evidence)] if evidence.device and 100.0 * evidence.host_ms >= HOST_SHARE * whole else []


def _work(evidence: Evidence) -> list[str]:
    """Return what the devices compute, and how close to their peak."""
    known = evidence.efficiency
    if known is None or not known.groups or evidence.compute_pct < _BOUND_BY_COMPUTE:
        return []
    return ["Device time a step: " + "; ".join(_group(group, known) for group in known.groups[:4]) + "."]


def _group(group: WorkGroup, known: Efficiency) -> str:
    if group.tflops:
        near = f", {group.peak_pct:.0f} % of the peak" if known.peak_tflops else ""
        return f"{group.name} {amount(group.ms_per_step)} ({group.tflops:.0f} TFLOP/s{near})"
    if group.gb_s and known.peak_gb_s:
        return f"{group.name} {amount(group.ms_per_step)} ({group.peak_pct:.0f} % of the memory bandwidth)"
    return f"{group.name} {amount(group.ms_per_step)}"


def by_replay(asked: dict[str, float], step: float) -> str:
    """Return what the step would gain under other assumptions; gains below one per cent of it are left out."""
    worth = [f"{SCENARIO[name]} {amount(ms)}" for name, ms in asked.items() if ms >= step / 100]
    if not worth:
        *most, last = (SCENARIO[name] for name in asked)
        listed = f"{', '.join(most)} or {last}" if most else last
        return f"By replay no step would gain 1 % from {listed}."
    return f"By replay each step would gain from: {', '.join(worth)}."
