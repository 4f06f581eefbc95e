"""Single-line summaries of a report, its ranks in order of importance, and its limitations."""

from __future__ import annotations

import math
from pathlib import PurePath

from rankscope.listing import named_ranks
from rankscope.records.report import ClusterReport, SourceFile
from rankscope.records.rows import ModuleRow, RankSummary
from rankscope.report.common import plain_text, wording

__all__ = [
    "FEW_RANKS",
    "clock_line",
    "has_accelerator",
    "idle_line",
    "in_order",
    "is_recorded",
    "memory_line",
    "modules_line",
    "overhead_line",
    "run_steps_line",
    "throughput_line",
    "warnings",
]

FEW_RANKS = 24
"""Up to this many ranks are easily read in one table."""
_COLLECTIVE_BACKENDS = ("nccl", "rccl", "xccl", "oneccl")


def has_accelerator(report: ClusterReport) -> bool:
    """Return whether a rank ran on a device other than a CPU, as far as the report shows."""
    devices = [*report.run.devices, *(rank.device or "" for rank in report.ranks)]
    known = [device.lower() for device in devices if device]
    if known:
        return any(not device.startswith("cpu") for device in known)
    return any(name in (report.run.backend or "").lower() for name in _COLLECTIVE_BACKENDS)


def is_recorded(report: ClusterReport) -> bool:
    """Return whether any rank left a usable trace."""
    return any(rank.compute_pct is not None for rank in report.ranks)


def in_order(report: ClusterReport) -> list[RankSummary]:
    """Return the ranks in order; if there are many, those that the verdict names and incomplete ones come first."""
    named = set(report.verdict.ranks)
    many = len(report.ranks) > FEW_RANKS
    return sorted(
        report.ranks,
        key=lambda rank: (many and rank.rank not in named, many and rank.status == "ok", rank.rank),
    )


def clock_line(report: ClusterReport) -> str:
    """Return how accurately times of different ranks can be compared."""
    clock, calls = report.clock, report.collectives
    if len(report.ranks) == 1 and not calls.count:
        return "one rank: no clocks to align, no collectives to match"
    method = plain_text.one_line(clock.method.replace("_", " "), 40)
    error = "error unknown" if clock.error_us is None else f"within {clock.error_us:,.0f} µs"
    first = "clocks not aligned" if clock.method == "none" else f"clocks by {method} ({error})"
    if calls.matched_pct is None:
        return f"{first}, {calls.count:,} collectives, none matched" if calls.count else f"{first}, no collectives seen"
    how = plain_text.one_line(calls.method.replace("_", " "), 40)
    return f"{first}, {calls.matched_pct:.1f} % of {calls.count:,} collectives matched (by {how})"


def overhead_line(report: ClusterReport) -> str | None:
    """Return what recording cost the job, if it was measured."""
    parts = []
    if report.run.recording_overhead_pct is not None:
        parts.append(f"steps {report.run.recording_overhead_pct:+.0f} % while recorded")
    if report.run.residue_pct is not None:
        parts.append(f"{report.run.residue_pct:+.0f} % after")
    if report.run.longest_stall_ms is not None:
        parts.append(f"longest stall {wording.ms(report.run.longest_stall_ms)}")
    return ", ".join(parts) or None


def throughput_line(report: ClusterReport) -> str | None:
    """Return rates of the whole job, if the script stated what a step processes."""
    known = report.throughput
    if known is None:
        return None
    parts = [
        f"{_three_digits(rate)} {name}/s"
        for name, rate in (("tokens", known.tokens_per_s), ("samples", known.samples_per_s))
        if rate is not None
    ]
    if known.tflops_per_rank is not None:
        share = "" if known.mfu_pct is None else f" (MFU {known.mfu_pct:.1f} %)"
        parts.append(f"{known.tflops_per_rank:,.3g} TFLOP/s of the model per rank{share}")
    return ", ".join(parts) or None


def _three_digits(rate: float) -> str:
    """Return a rate with three digits: ``1,230,000``, ``12.3``."""
    digits = max(2 - math.floor(math.log10(rate)), 0) if rate > 0 else 0
    return f"{rate:,.{digits}f}" if rate < 1000 else f"{float(f'{rate:.3g}'):,.0f}"


def idle_line(report: ClusterReport) -> str | None:
    """Return how long the devices are idle for their hosts: the times of the bars, from the least to the most. None
    without devices, or if that is less than one per cent of a step everywhere."""
    least = (report.verdict.step_ms or 0.0) / 100
    if not report.idle or not has_accelerator(report):
        return None
    found = []
    for words, name in (("for their hosts", "host_ms"), ("for input", "input_ms")):
        rows = sorted((getattr(row, name) or 0.0, row.rank) for row in report.idle)
        (low, first), (high, last) = rows[0], rows[-1]
        if high > least:
            ranks = f"{wording.ms(low)} (rank {first}) to {wording.ms(high)} (rank {last})"
            found.append(f"{words} {wording.ms(high) if wording.ms(low) == wording.ms(high) else ranks}")
    return f"devices idle {', '.join(found)}, per step" if found else None


def modules_line(report: ClusterReport, most: int = 3) -> str | None:
    """Return the FSDP modules or DDP buckets with most transfer that no compute hides; empty if a rank is named, since
    the others wait for it there."""
    if report.verdict.kind == "straggler":
        return None
    rows = sorted(report.modules, key=lambda row: -_bare_transfer(row))[:most]
    least = (report.verdict.step_ms or 0.0) / 100
    named = [f"{_call(row)} {wording.ms(_bare_transfer(row))}" for row in rows if _bare_transfer(row) > least]
    return f"most transfer that nothing hides, per step: {', '.join(named)}" if named else None


def _bare_transfer(row: ModuleRow) -> float:
    """Return an upper bound of the transfer that nothing hides: waiting for peers is none."""
    return min(row.exposed_ms_per_step or 0.0, row.transfer_ms_per_step or 0.0)


def _call(row: ModuleRow) -> str:
    return f"{plain_text.one_line(row.collective, 40).replace('_', '-')} of {plain_text.one_line(row.module, 40)}"


def run_steps_line(report: ClusterReport) -> str | None:
    """Return whether the windows were recorded in typical steps, None if unknown."""
    run_steps = report.pulse
    if run_steps is None or run_steps.typical is None or run_steps.around_ms is None or run_steps.median_ms is None:
        return None
    windows = "the window was" if len(run_steps.windows) == 1 else "the windows were"
    kind = "typical" if run_steps.typical else "not typical"
    near = f"{wording.ms(run_steps.around_ms)} around {'it' if len(run_steps.windows) == 1 else 'them'}"
    return f"{windows} {kind}: {near}, {wording.ms(run_steps.median_ms)} over {run_steps.unprofiled_steps:,} steps"


def between_line(report: ClusterReport) -> str | None:
    """Return the result of the log of all steps, None if there is none or the verdict contains it already."""
    between = report.verdict.between
    if between is None or between.kind == "insufficient_data" or between.sentence == report.verdict.sentence:
        return None
    return plain_text.prose(between.sentence)


def hang_line(report: ClusterReport) -> str | None:
    """Return why the job stood still, None if it did not."""
    hang = report.hang
    if hang is None:
        return None
    then = "; it went on afterwards" if hang.resumed else ""
    return f"{plain_text.prose(hang.sentence)} (no step for {hang.idle_s or 0.0:.0f} s{then})"


def memory_line(report: ClusterReport) -> str | None:
    """Return the highest peak of device memory."""
    row = max(report.memory, key=lambda row: row.peak_allocated_bytes, default=None)
    if row is None:
        return None
    allocated, reserved = row.peak_allocated_bytes / 2**30, row.peak_reserved_bytes / 2**30
    of = f" of {row.device_bytes / 2**30:.0f} GiB" if row.device_bytes else ""
    return f"peak {allocated:.1f} GiB allocated, {reserved:.1f} GiB reserved{of} (rank {row.rank})"


REDACTED_WITHOUT = {
    "message_sizes": "sizes of messages and copies, and with them bus bandwidth",
    "memory": "device memory",
    "step_logs": "steps outside of the windows",
    "health": "state of devices and hosts",
    "kernel_details": "registers of kernels",
    "grids": "launch grids",
    "versions": "versions",
}
"""What a copy lacks if its policy drops this content."""


def redacted_line(report: ClusterReport) -> str:
    """Return what a copy by `rankscope redact` lacks."""
    kinds = report.run.redacted_kinds
    shapes = kinds.get("shapes", "token")
    without = [words for kind, words in REDACTED_WITHOUT.items() if kinds.get(kind) == "drop"]
    return (
        f"a redacted copy (level {plain_text.one_line(report.run.redacted, 80)}): names, "
        f"{'' if shapes == 'keep' else 'shapes, '}hosts and paths that are nobody else's are tokens"
        + ("" if shapes == "keep" else "; FLOPs and MFU cannot be told from it")
        + (f"; left out: {', '.join(without)}" if without else "")
    )


def warnings(report: ClusterReport) -> list[str]:
    """Return the limitations of the report, the most serious first."""
    found = [redacted_line(report)] if report.run.redacted is not None else []
    kinds_shown = set[str]()
    if line := hang_line(report):
        found.append(f"the job stood still: {line}")
    for status, words in (
        ("missing", "left no trace"),
        ("corrupt", "left an unusable trace"),
        ("partial", "left a partial trace"),
    ):
        found_ranks = [rank for rank in report.ranks if rank.status == status]
        told = not is_recorded(report) and any(
            rank.reason and rank.reason in " ".join(report.verdict.why) for rank in found_ranks
        )
        if found_ranks and not told:
            reasons = sorted({plain_text.one_line(rank.reason, 160) for rank in found_ranks if rank.reason})
            why = f" ({'; '.join(reasons[:2])})" if reasons else ""
            found.append(f"{named_ranks(r.rank for r in found_ranks)} {words}{why}")
            kinds_shown |= {f"rank {r.rank}: {r.reason}" for r in found_ranks if len(reasons) <= 2}
    found += [
        f"{plain_text.one_line(error.where, 60)} failed: {plain_text.one_line(error.message, 200)}"
        for error in report.errors
    ]
    found += _files(report)
    notes = [note for note in report.run.notes if kinds_shown.isdisjoint((note, note.partition(": ")[2]))]
    return found + [plain_text.one_line(note, 240) for note in notes]


_NAMED_FILES = 2


def _files(report: ClusterReport) -> list[str]:
    """Return how many files were not used, and how many were repaired, with the first of them and why."""
    found = []
    told = " ".join(row.reason or "" for row in report.ranks if row.status in ("missing", "corrupt"))
    unusable = [
        source
        for source in report.sources
        if source.status in ("unusable", "unassigned") and not (source.reason and source.reason in told)
    ]
    if unusable:
        why = [_named(source) for source in unusable]
        count = f"{len(unusable)} {'file' if len(unusable) == 1 else 'files'}"
        found.append(f"{count} could not be used{_some(why)}")
    repaired = [source for source in report.sources if source.repairs]
    if repaired:
        why = [
            f"{_whose(source)}: {', '.join(f'{n:,} x {kind}' for kind, n in source.repairs.items())}"
            for source in repaired
        ]
        count = f"{len(repaired)} {'trace was' if len(repaired) == 1 else 'traces were'}"
        found.append(f"{count} repaired while reading{_some(why)}")
    return found


def _named(source: SourceFile) -> str:
    name, reason = PurePath(source.path).name, source.reason or "no reason is known"
    return plain_text.one_line(reason if source.path in reason or reason.startswith(name) else f"{name}: {reason}", 160)


def _whose(source: SourceFile) -> str:
    return PurePath(source.path).name if source.rank is None else f"rank {source.rank}"


def _some(why: list[str]) -> str:
    more = "; ..." if len(why) > _NAMED_FILES else ""
    return f" ({'; '.join(why[:_NAMED_FILES])}{more})" if why else ""
