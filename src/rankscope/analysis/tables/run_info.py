"""What the manifest and the metadata of the traces contain on the run and its ranks. No measurements are made here."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timezone

from rankscope.capture_backends import recorder
from rankscope.limits import absent_ranks
from rankscope.records.manifest import RunManifest
from rankscope.records.rank import RankRecord, RankStatus
from rankscope.records.report import RunInfo, SourceFile
from rankscope.records.rows import RankSummary
from rankscope.trace.columns import REDACTED, RankTrace

__all__ = ["complete_ranks", "run_info"]

_REAL_TIME_NS = 10**18
"""Year 2001 in nanoseconds since 1970: larger times are on the real-time clock, smaller ones have another origin."""
_WHAT_BECAME_OF_IT = ("keep", "token", "shift", "drop")
_WORST = {"ok": 0, "skipped": 0, "partial": 1, "corrupt": 2, "missing": 3}


def run_info(traces: Sequence[RankTrace], manifest: RunManifest | None) -> RunInfo:
    """Return the head of the report."""
    info = RunInfo(
        source="traces" if manifest is None else "run",
        world_size=_world_size(traces),
        hosts=sorted({t.meta.host for t in traces if t.meta.host}),
        devices=sorted({t.meta.device for t in traces if t.meta.device}),
        backend=next((t.meta.backend for t in traces if t.meta.backend), None),
        begun=_begun(traces),
        windows=_windows(traces, manifest),
        notes=_notes(traces),
    )
    info.redacted, info.redacted_kinds = _redacted(traces, manifest)
    for trace in traces:
        info.versions = {**trace.meta.versions, **info.versions}
    if manifest is None:
        info.notes += _unnamed(traces)
        return info
    info.run_id, info.command, info.exit_code = manifest.run_id, list(manifest.argv), manifest.exit_code
    info.world_size = manifest.world_size or info.world_size
    info.hosts = list(manifest.hosts) or info.hosts
    info.versions = {**info.versions, **manifest.versions}
    info.notes = [*manifest.notes, *(m for w in manifest.windows for m in w.mismatches), *info.notes]
    records = [r for w in manifest.windows for r in w.records]
    info.backend = info.backend or next((r.backend for r in records if r.backend), None)
    return info


def _redacted(traces: Sequence[RankTrace], manifest: RunManifest | None) -> tuple[str | None, dict[str, str]]:
    """Return the level of a redacted copy, and the treatment of each kind of content."""
    redactions = [t.meta.raw.get(REDACTED) for t in traces] + [manifest.redaction if manifest is not None else None]
    copies = [copy for copy in redactions if isinstance(copy, dict)]
    levels = {str(copy.get("level", ""))[:80] for copy in copies}
    kinds = {str(kind)[:40]: choice for copy in copies for kind, choice in copy.items() if choice in _WHAT_BECAME_OF_IT}
    return ", ".join(sorted(levels)) if levels else None, kinds


def _begun(traces: Sequence[RankTrace]) -> str | None:
    """Return when the first event of all was recorded, if times are on the real-time clock."""
    starts = [int(t.events.start[0]) for t in traces if len(t.events)]
    first = min((ns for ns in starts if ns > _REAL_TIME_NS), default=None)
    return None if first is None else f"{datetime.fromtimestamp(first / 1e9, timezone.utc):%Y-%m-%d %H:%M} UTC"


def _unnamed(traces: Sequence[RankTrace]) -> list[str]:
    """Return a sentence on the missing ranks that :func:`complete_ranks` does not name."""
    world = _world_size(traces) or 0
    named, more = absent_ranks(world, {t.rank for t in traces if t.rank is not None})
    if not more:
        return []
    return [f"{more} ranks of {world} besides the {len(named)} named as missing left no trace either"]


def _world_size(traces: Sequence[RankTrace]) -> int | None:
    return max((t.meta.world_size for t in traces if t.meta.world_size), default=None)


def _recorders(records: Sequence[RankRecord]) -> str:
    """Return the backend that recorded a window, with the reason if it is not the configured one."""
    by_recorder: dict[str, list[int]] = {}
    for record in records:
        if record.trace is not None and record.capture is not None:
            why = f" ({record.capture_reason})" if record.capture_reason else ""
            by_recorder.setdefault(f"by {recorder(record.capture)}{why}", []).append(record.rank)
    if len(by_recorder) == 1:
        return next(iter(by_recorder))
    return ", ".join(f"{who} on rank {', '.join(map(str, sorted(ranks)[:8]))}" for who, ranks in by_recorder.items())


def _windows(traces: Sequence[RankTrace], manifest: RunManifest | None) -> list[str]:
    recorders = {(w.attempt, w.window): _recorders(w.records) for w in manifest.windows} if manifest else {}
    held = {(w.attempt, w.window): _held(w.records) for w in manifest.windows} if manifest else {}
    counted = {(w.attempt, w.window): _counted(w.records) for w in manifest.windows} if manifest else {}
    found = []
    keys = sorted({(t.attempt, t.window) for t in traces})
    for attempt, window in keys:
        members = [t for t in traces if (t.attempt, t.window) == (attempt, window)]
        numbers = [int(n) for t in members for n in (t.steps.number[:1].tolist() + t.steps.number[-1:].tolist())]
        steps = f"steps {min(numbers)} to {max(numbers)}" if numbers else "no step marks"
        by = recorders.get((attempt, window))
        parts = [
            steps if keys == [(0, 0)] else f"attempt {attempt}, window {window}: {steps}",
            "1 rank" if len(members) == 1 else f"{len(members)} ranks",
            by,
            counted.get((attempt, window)),
            held.get((attempt, window)),
        ]
        found.append(", ".join(part for part in parts if part))
    return found


def _counted(records: Sequence[RankRecord]) -> str | None:
    """Return the signal by which steps were counted, and how certain it is that it means a step."""
    ways = {(r.step_source, r.step_trust) for r in records if r.trace and r.step_source and r.step_trust}
    signals = ", ".join(f"{source} ({trust})" for source, trust in sorted(ways, key=str))
    return f"steps counted by {signals}" if signals else None


def _held(records: Sequence[RankRecord]) -> str | None:
    """Return how long opening and closing a window blocked a training thread, on the rank where it was longest."""
    held = [
        (r.steps.open_ms or 0.0) + (r.steps.close_ms or 0.0)
        for r in records
        if r.steps.close_ms is not None and r.trace
    ]
    return f"opening and closing it held training for {max(held):.0f} ms" if held else None


def _notes(traces: Sequence[RankTrace]) -> list[str]:
    seen: dict[str, list[int]] = {}
    for trace in traces:
        for note in trace.notes:
            seen.setdefault(note, []).append(trace.rank if trace.rank is not None else -1)
    return [f"rank {', '.join(map(str, sorted(set(ranks))[:8]))}: {note}" for note, ranks in seen.items()]


def complete_ranks(
    rows: list[RankSummary],
    traces: Sequence[RankTrace],
    manifest: RunManifest | None,
    sources: Sequence[SourceFile] = (),
) -> list[RankSummary]:
    """Add what the manifest contains: hosts, states, and the ranks that left no trace.

    Without a manifest the world size in the traces shows which ranks are missing. If the file of a rank exists and was
    not used, its reason is the rank's.
    """
    refused = _refused(sources)
    status: RankStatus
    by_rank = {row.rank: row for row in rows}
    if manifest is None:
        for rank in {t.rank for t in traces if t.rank is not None} - by_rank.keys():
            by_rank[rank] = RankSummary(rank=rank, status="partial", reason="its window failed; see the errors")
        for rank in absent_ranks(_world_size(traces) or 0, by_rank)[0]:
            status, reason = refused.get(rank, ("missing", "no trace of this rank was given"))
            by_rank[rank] = RankSummary(rank=rank, status=status, reason=reason)
        return [by_rank[rank] for rank in sorted(by_rank)]
    records = [r for w in manifest.windows for r in w.records] or list(manifest.lives)
    for record in records:
        row = by_rank.get(record.rank)
        if row is None:
            status = "missing" if record.status in {"ok", "partial"} else record.status
            reason = record.reason or "no usable trace"
            if record.rank in refused and record.status in {"ok", "partial"}:
                status, why = refused[record.rank]
                reason = f"{record.reason}; {why}" if record.reason else why
            by_rank[record.rank] = RankSummary(
                rank=record.rank, host=record.host, device=record.device, status=status, reason=reason
            )
            continue
        row.host, row.device = record.host or row.host, record.device or row.device
        if _WORST[record.status] > _WORST[row.status] and row.compute_pct is not None:
            # it has numbers, so the rank left a trace in some window
            row.status, row.reason = "partial", record.reason
    return [by_rank[rank] for rank in sorted(by_rank)]


def _refused(sources: Sequence[SourceFile]) -> dict[int, tuple[RankStatus, str]]:
    """Return rank -> result for a file that belongs to it by name or content, and was not used."""
    found: dict[int, tuple[RankStatus, str]] = {}
    for source in sources:
        if source.rank is not None and source.status != "used" and source.reason:
            status: RankStatus = "corrupt" if source.status == "unusable" else "missing"
            name = source.path.rpartition("/")[2]
            reason = source.reason if name in source.reason else f"{name}: {source.reason}"
            found.setdefault(source.rank, (status, reason))
    return found
