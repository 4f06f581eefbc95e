"""Numbers and names as words: the same phrase in the page, the terminal and Markdown."""

from __future__ import annotations

import re
from collections.abc import Iterable

from rankscope.causes.wording import SCENARIO
from rankscope.diagnose.rules.table import name_of
from rankscope.records.report import ClusterReport, Finding, Verdict
from rankscope.records.rows import ModuleRow, RankSummary

__all__ = [
    "DASH",
    "FEW_RANKS",
    "KIND_LABELS",
    "cause",
    "clean",
    "clock_line",
    "elide",
    "gain",
    "has_accelerator",
    "in_order",
    "interesting",
    "keep_units",
    "memory_line",
    "modules_line",
    "ms",
    "named_ranks",
    "one_line",
    "overhead_line",
    "pct",
    "plus_minus",
    "prose",
    "queue_line",
    "ranks",
    "scenario",
    "sentence",
    "share_of_step",
    "short_name",
    "steps_share",
    "warnings",
]

DASH = "\N{EN DASH}"
"""Stands where a number is not known."""

FEW_RANKS = 24
"""Up to this many ranks are seen at one look."""

KIND_LABELS = {
    "straggler": "Straggler",
    "balanced": "Balanced",
    "host_bound": "Host bound",
    "comm_bound": "Communication bound",
    "pipeline": "Pipeline",
    "contended": "Machine busy",
    "insufficient_data": "Not enough data",
}

_DEFAULT_SENTENCES = {
    "straggler": "One or more ranks hold the job back.",
    "balanced": "No rank holds the others back.",
    "host_bound": "The host cannot hand out work fast enough.",
    "comm_bound": "Communication that nothing hides takes much of each step.",
    "pipeline": "Stages of a pipeline wait for each other.",
    "contended": "The machine was busy; no rank is to blame.",
    "insufficient_data": "There is not enough data for a verdict.",
}

_COLLECTIVE_BACKENDS = ("nccl", "rccl", "xccl", "oneccl")
_CONTROL = {code: 0x2400 + code for code in range(32) if code not in (9, 10)} | {127: 0x2421}
_CONTROL |= dict.fromkeys(range(0x80, 0xA0), 0xFFFD)
_CONTROL |= dict.fromkeys((*range(0x202A, 0x202F), *range(0x2066, 0x206A)), 0xFFFD)  # bidirectional overrides
_SPACE = re.compile(r"\s+")
_BEFORE_UNIT = re.compile(r"(?<=\d) (?=(?:%|[mµun]?s|[kMG]B(?:/s)?|±)(?!\w))|(?<=±) (?=\d)")
_NAMESPACES = re.compile(r"\b(?:at::native|at::cuda|at|c10|cutlass|std)::(?:\(anonymous namespace\)::)?")


def clean(text: str) -> str:
    """Replace what no screen should interpret: control and escape characters, lone surrogates."""
    return text.encode("utf-8", "replace").decode("utf-8").translate(_CONTROL)


def one_line(text: object, limit: int = 400) -> str:
    """Return cleaned text without line breaks, at most ``limit`` characters."""
    return elide(clean(_SPACE.sub(" ", str(text))).strip(), limit)


def elide(text: str, limit: int) -> str:
    """Cut the middle out of a long name: its end often says more than its middle."""
    if len(text) <= limit:
        return text
    head = (limit - 1) * 2 // 3
    return f"{text[:head]}…{text[len(text) - (limit - 1 - head) :]}"


def prose(text: object, limit: int = 400) -> str:
    """Return cleaned text without line breaks, a longer one cut at its end, between words."""
    line = clean(_SPACE.sub(" ", str(text))).strip()
    if len(line) <= limit:
        return line
    head, space, _ = line[:limit].rpartition(" ")
    return (head.rstrip(" ,;:") if space and len(head) > limit // 2 else line[: limit - 1]) + "…"


def keep_units(text: str, glue: str = "\N{NO-BREAK SPACE}") -> str:
    """Put ``glue`` for the space between a number and its unit, so that no line breaks there."""
    return _BEFORE_UNIT.sub(glue, text)


def cause(identifier: str) -> str:
    """Return a cause or a kind of finding in words."""
    return name_of(identifier) or one_line(identifier.replace("_", " "), 60)


def scenario(identifier: str) -> str:
    """Return what a replay assumed, in words."""
    return SCENARIO.get(identifier) or one_line(identifier.replace("_", " "), 60)


def short_name(name: str, limit: int = 88) -> str:
    """Return a kernel's name as a person would say it: without return type, common namespaces and parameters."""
    text = one_line(name, 4000).removeprefix("void ")
    text = _NAMESPACES.sub("", text)
    depth = 0
    for index, letter in enumerate(text):
        depth += (letter == "<") - (letter == ">")
        if letter == "(" and depth == 0 and index > 0:
            text = text[:index]
            break
    return elide(text, limit) or "(no name)"


def ms(value: float | None, unit: str = " ms") -> str:
    """Milliseconds with about three significant digits."""
    if value is None:
        return DASH
    size = abs(value)
    decimals = 0 if size >= 1000 else 1 if size >= 10 else 2 if size >= 0.1 or size == 0 else 3
    return f"{value:,.{decimals}f}{unit}"


def plus_minus(value: float | None, error: float | None, unit: str = " ms") -> str:
    """Return a cost with its uncertainty, both with the digits of the cost: ``60.3 ± 1.9 ms``."""
    text = ms(value, "")
    if value is None or error is None:
        return text + ("" if value is None else unit)
    return f"{text} ± {error:,.{len(text.partition('.')[2])}f}{unit}"


def pct(value: float | None, decimals: int = 1) -> str:
    """Percent, or a dash when unknown."""
    return DASH if value is None else f"{value:.{decimals}f} %"


def ranks(numbers: Iterable[int]) -> str:
    """Ranks as ranges: ``0-3, 7``."""
    ordered = sorted(set(numbers))
    parts: list[str] = []
    start = 0
    for index, number in enumerate(ordered):
        if index + 1 == len(ordered) or ordered[index + 1] != number + 1:
            first = ordered[start]
            separator = ", " if number == first + 1 else "-"
            parts.append(str(first) if first == number else f"{first}{separator}{number}")
            start = index + 1
    return ", ".join(parts)


def named_ranks(numbers: Iterable[int]) -> str:
    """``rank 1`` or ``ranks 0-3, 7``."""
    unique = set(numbers)
    return f"{'rank' if len(unique) == 1 else 'ranks'} {elide(ranks(unique), 80)}"


def sentence(verdict: Verdict) -> str:
    """Return the verdict's sentence, or a plain one where the diagnosis left none."""
    return prose(verdict.sentence, 600) or _DEFAULT_SENTENCES.get(verdict.kind, "No verdict.")


def share_of_step(cost: float | None, step: float | None) -> float | None:
    """Return the cost in percent of the step, where both are known."""
    return None if cost is None or not step else 100 * cost / step


def steps_share(verdict: Verdict) -> str:
    """In how many of the steps it costs time: ``in every step``, or nothing where that is not known."""
    share = verdict.share_of_steps_pct
    if share is None:
        return ""
    return "in every step" if share == 100 else f"in {_percent(share)} of the steps"


def gain(finding: Finding, step: float | None) -> str:
    """Return in words what removing a finding's cause would gain."""
    cost = finding.cost_ms_per_step
    if cost is None:
        return "No gain in time is claimed for this."
    share = share_of_step(cost, step)
    if share is None or step is None or cost > step:
        return f"About {ms(cost)} of every step."
    return f"A step of {ms(step)} would take about {ms(step - cost)}, {_percent(share)} less."


def _percent(share: float) -> str:
    return f"{share:.0f} %" if share >= 1 or share == 0 else "less than 1 %"


def has_accelerator(report: ClusterReport) -> bool:
    """Return whether a rank ran on something other than a CPU, as far as the report says."""
    devices = [*report.run.devices, *(rank.device or "" for rank in report.ranks)]
    known = [device.lower() for device in devices if device]
    if known:
        return any(not device.startswith("cpu") for device in known)
    return any(name in (report.run.backend or "").lower() for name in _COLLECTIVE_BACKENDS)


def in_order(report: ClusterReport) -> list[RankSummary]:
    """Ranks in order; where there are many, those that the verdict names and broken ones come first."""
    named = set(report.verdict.ranks)
    many = len(report.ranks) > FEW_RANKS
    return sorted(
        report.ranks,
        key=lambda rank: (many and rank.rank not in named, many and rank.status == "ok", rank.rank),
    )


def interesting(report: ClusterReport, limit: int) -> list[RankSummary]:
    """At most ``limit`` ranks, in order: the verdict's, broken ones, those others waited for, slow ones."""
    if len(report.ranks) <= limit:
        return sorted(report.ranks, key=lambda rank: rank.rank)
    named = set(report.verdict.ranks)

    def weight(rank: RankSummary) -> tuple[bool, bool, float, float]:
        return (
            rank.rank not in named,
            rank.status == "ok",
            -(rank.caused_wait_ms_per_step or 0.0),
            -(rank.step_ms.get("median") or 0.0),
        )

    return sorted(sorted(report.ranks, key=weight)[:limit], key=lambda rank: rank.rank)


def clock_line(report: ClusterReport) -> str:
    """How far times of different ranks can be compared."""
    clock, calls = report.clock, report.collectives
    method = one_line(clock.method.replace("_", " "), 40)
    error = "error unknown" if clock.error_us is None else f"within {clock.error_us:,.0f} µs"
    first = "clocks not aligned" if clock.method == "none" else f"clocks by {method} ({error})"
    if calls.matched_pct is None:
        return f"{first}, {calls.count:,} collectives, none matched" if calls.count else f"{first}, no collectives seen"
    how = one_line(calls.method.replace("_", " "), 40)
    return f"{first}, {calls.matched_pct:.1f} % of {calls.count:,} collectives matched (by {how})"


def overhead_line(report: ClusterReport) -> str | None:
    """Return what recording cost the job, where it was measured."""
    parts = []
    if report.run.recording_overhead_pct is not None:
        parts.append(f"steps {report.run.recording_overhead_pct:+.0f} % while recorded")
    if report.run.residue_pct is not None:
        parts.append(f"{report.run.residue_pct:+.0f} % after")
    if report.run.longest_stall_ms is not None:
        parts.append(f"longest stall {ms(report.run.longest_stall_ms)}")
    return ", ".join(parts) or None


def queue_line(report: ClusterReport) -> str | None:
    """How far the devices wait for their hosts."""
    rows = sorted(report.queues, key=lambda row: row.starved_pct or 0.0)
    if not rows:
        return None
    low, high = rows[0], rows[-1]
    least, most = pct(low.starved_pct, 0), pct(high.starved_pct, 0)
    share = most if least == most else f"{least} (rank {low.rank}) to {most} (rank {high.rank})"
    return f"devices without queued work {share} of the window"


def modules_line(report: ClusterReport, most: int = 3) -> str | None:
    """Which FSDP modules or DDP buckets are exposed most."""
    rows = sorted(report.modules, key=lambda row: -(row.exposed_ms_per_step or 0.0))[:most]
    named = [f"{_call(row)} {ms(row.exposed_ms_per_step)}" for row in rows if (row.exposed_ms_per_step or 0.0) > 0]
    return f"most exposed per step: {', '.join(named)}" if named else None


def _call(row: ModuleRow) -> str:
    return f"{one_line(row.collective, 40).replace('_', '-')} of {one_line(row.module, 40)}"


def pulse_line(report: ClusterReport) -> str | None:
    """Return whether the windows were recorded in steps like the others, None where that is not known."""
    pulse = report.pulse
    if pulse is None or pulse.typical is None or pulse.around_ms is None or pulse.median_ms is None:
        return None
    windows = "the window was" if len(pulse.windows) == 1 else "the windows were"
    kind = "typical" if pulse.typical else "not typical"
    near = f"{ms(pulse.around_ms)} around {'it' if len(pulse.windows) == 1 else 'them'}"
    return f"{windows} {kind}: {near}, {ms(pulse.median_ms)} over {pulse.unprofiled_steps:,} steps"


def memory_line(report: ClusterReport) -> str | None:
    """Return the highest peak of device memory."""
    row = max(report.memory, key=lambda row: row.peak_allocated_bytes, default=None)
    if row is None:
        return None
    allocated, reserved = row.peak_allocated_bytes / 2**30, row.peak_reserved_bytes / 2**30
    return f"peak {allocated:.1f} GiB allocated, {reserved:.1f} GiB reserved (rank {row.rank})"


def warnings(report: ClusterReport) -> list[str]:
    """Return what limits the report, most serious first."""
    found = []
    for status, words in (
        ("missing", "left no trace"),
        ("corrupt", "left an unusable trace"),
        ("partial", "left a partial trace"),
    ):
        found_ranks = [rank for rank in report.ranks if rank.status == status]
        if found_ranks:
            reasons = sorted({one_line(rank.reason, 160) for rank in found_ranks if rank.reason})
            why = f" ({'; '.join(reasons[:2])})" if reasons else ""
            found.append(f"{named_ranks(r.rank for r in found_ranks)} {words}{why}")
    found += [f"{one_line(error.where, 60)} failed: {one_line(error.message, 200)}" for error in report.errors]
    unusable = sum(source.status in ("unusable", "unassigned") for source in report.sources)
    if unusable:
        found.append(f"{unusable} {'file' if unusable == 1 else 'files'} could not be used")
    repaired = sum(bool(source.repairs) for source in report.sources)
    if repaired:
        found.append(f"{repaired} {'trace was' if repaired == 1 else 'traces were'} repaired while reading")
    return found + [one_line(note, 240) for note in report.run.notes]
