"""Paths -> the traces of all ranks and windows, and the fate of every file that was offered."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from rankscope.errors import TraceError
from rankscope.model import SourceFile
from rankscope.trace.build import read_trace
from rankscope.trace.columns import RankTrace
from rankscope.trace.find import Candidate, find_traces
from rankscope.trace.windows import assign_windows

__all__ = ["LoadResult", "load_traces"]

Progress = Callable[[int, int, str], None]
"""Called with files done, files in all, and the file just done."""


@dataclass(slots=True)
class LoadResult:
    """What came of the paths given."""

    traces: list[RankTrace]
    """In order of attempt, window and rank; at most one for each."""
    sources: list[SourceFile]
    """Every file offered: used, ignored, unusable or unassigned."""
    unassigned: list[RankTrace] = field(default_factory=list)
    """Readable traces of which neither name nor content says the rank."""


def load_traces(
    paths: Sequence[Path], *, workers: int | None = None, cache: bool = True, progress: Progress | None = None
) -> LoadResult:
    """Find, decode and sort out traces.

    A file that cannot be used is listed with the reason; the others go on.

    Args:
        paths: files, folders or run directories.
        workers: processes to decode in; None chooses by size and CPU count, 1 stays in this process.
        cache: read and write the Parquet columns beside each trace.
        progress: called after each file.
    """
    candidates, sources = find_traces(paths)
    traces: list[RankTrace] = []
    unassigned: list[RankTrace] = []
    read: list[tuple[Candidate, RankTrace]] = []
    for done, candidate in enumerate(candidates, 1):
        try:
            trace = read_trace(candidate.path, name_rank=candidate.name_rank)
        except TraceError as error:
            sources.append(SourceFile(path=str(candidate.path), status="unusable", rank=candidate.name_rank, reason=str(error)))
            continue
        finally:
            if progress is not None:
                progress(done, len(candidates), str(candidate.path))
        if trace.rank is None:
            unassigned.append(trace)
            reason = "neither the content nor the file name says which rank this is"
            sources.append(SourceFile(path=trace.source, status="unassigned", reason=reason, repairs=dict(trace.repairs)))
        else:
            read.append((candidate, trace))
    for trace, rival in assign_windows(read):
        if rival is None:
            traces.append(trace)
            reason = "; ".join(trace.notes) or None
            sources.append(
                SourceFile(path=trace.source, status="used", rank=trace.rank, reason=reason, repairs=dict(trace.repairs))
            )
        else:
            reason = f"{rival} is the same rank and window; only that one is used"
            sources.append(SourceFile(path=trace.source, status="unusable", rank=trace.rank, reason=reason))
    traces.sort(key=lambda t: (t.attempt, t.window, -1 if t.rank is None else t.rank))
    return LoadResult(traces, sources, unassigned)
