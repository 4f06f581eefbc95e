"""Load the traces of all ranks and windows below some paths, with the result for every file."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from rankscope.errors import ConfigError, ForeignFileError, TraceError
from rankscope.records.report import SourceFile
from rankscope.trace.columns import RankTrace
from rankscope.trace.files.cache import drop_cached, load_cached, store_cached
from rankscope.trace.files.find import Candidate, Found, find_traces
from rankscope.trace.files.formats import BY_NAME
from rankscope.trace.files.identify import FileRank, assign_ranks
from rankscope.trace.files.jobs import copies, other_jobs
from rankscope.trace.files.objects import read_object
from rankscope.trace.files.shared import Shared
from rankscope.trace.files.windows import assign_windows, left_alone, other_processes
from rankscope.trace.peers import agree_on_peers
from rankscope.worker_pool import worker_pool

__all__ = ["Decoded", "LoadResult", "load_traces", "process_count", "put_together", "read_one", "weight"]

Progress = Callable[[int, int, str], None]
"""Called with bytes done, bytes in total (of the files on disk) and the file just done; the first call has no file."""
_PACKED_WEIGHT = 12
"""Estimated bytes of JSON per byte of gzip."""
_ALONE = (
    "left out, because no other rank was recorded at that time, and another process of this rank was recorded together "
    "with the others: it is of another run; analyse it by itself"
)
_WORTH_A_PROCESS = 200 << 20
"""Bytes of JSON below which processes cost more than they save: starting one takes as long as decoding 50 MB."""


@dataclass(slots=True)
class LoadResult:
    """The result of loading some paths."""

    traces: list[RankTrace]
    """In order of attempt, window and rank; at most one per window and rank."""
    sources: list[SourceFile]
    """Every file offered: used, ignored, unusable or unassigned."""
    unassigned: list[RankTrace] = field(default_factory=list)
    """Readable traces whose rank is neither in the name nor in the content."""
    snapshots: list[Path] = field(default_factory=list)
    """Memory snapshots of ranks, beside their traces."""
    step_logs: list[Path] = field(default_factory=list)
    """Step logs of ranks over the whole run."""
    notes: list[str] = field(default_factory=list)
    """Remarks for the reader of the report on the files together."""


Decoded = list[RankTrace] | str
"""The traces of one file, or why there are none."""


def load_traces(
    paths: Sequence[Path],
    *,
    ranks: Mapping[Path, int] | None = None,
    workers: int | None = None,
    executor: Executor | None = None,
    cache: bool | Path = True,
    progress: Progress | None = None,
) -> LoadResult:
    """Find and decode traces, and determine rank and window of each.

    A file that cannot be used is listed with the reason, and does not affect the others. No error is raised for a file.

    Args:
        paths: files, folders or run directories.
        ranks: file -> its rank, which takes precedence over the rank in the file.
        workers: number of processes to decode in, including this one; None chooses by size and CPU count.
        executor: decodes instead of these processes. Files that it does not return are decoded here.
        cache: read and write the columns of each trace as Parquet: at the place given by :mod:`.cache`, or in a folder.
        progress: called before the first and after each file.

    Raises:
        ConfigError: ``ranks`` names a file that is not one of the traces.
    """
    found = find_traces(paths)
    candidates = found.candidates
    given = _given(candidates, ranks or {})
    sizes = [_size(candidate.path) for candidate in candidates]
    whole, done = sum(sizes), 0
    if progress is not None:
        progress(0, whole, "")
    results: dict[int, Decoded] = {}
    shared = Shared()
    for index, result in _read_all(candidates, workers, cache, executor):
        results[index] = result if isinstance(result, str) else [shared.take(trace) for trace in result]
        done += sizes[index]
        if progress is not None:
            progress(done, whole, str(candidates[index].path))
    read = [(c, results[i]) for i, c in enumerate(candidates)]
    read = _with_objects(read, found, shared)
    loaded = put_together(read, found.aside, given)
    loaded.snapshots, loaded.step_logs = found.snapshots, found.step_logs
    if cache:
        for source in loaded.sources:
            if source.status in ("unassigned", "unusable"):  # no columns of a rejected file are kept
                drop_cached(Path(source.path), _folder(cache))
    return loaded


def _with_objects(
    read: list[tuple[Candidate, Decoded]], found: Found, shared: Shared
) -> list[tuple[Candidate, Decoded]]:
    """Merge the files, in their order, with those of which a run directory keeps only the columns."""
    there = {candidate.path for candidate, _ in read}
    for path in found.objects:
        try:
            more = read_object(path)
        except (ForeignFileError, OSError) as error:
            found.aside.append(SourceFile(path=str(path), status="unusable", reason=str(error)))
            continue
        for candidate, decoded in more:
            if candidate.path not in there:
                there.add(candidate.path)
                own = decoded if isinstance(decoded, str) else [shared.take(trace) for trace in decoded]
                read.append((candidate, own))
    return sorted(read, key=lambda pair: pair[0].order) if found.objects else read


def put_together(
    files: Sequence[tuple[Candidate, Decoded]], aside: list[SourceFile], given: Mapping[Path, int]
) -> LoadResult:
    """Determine rank and window of each trace.

    Args:
        files: in the order of :class:`Found`, with the result of reading each.
        aside: files that are not traces; unusable ones are appended.
        given: resolved path -> rank, by the user.
    """
    read: list[tuple[Candidate, RankTrace]] = []
    for candidate, decoded in files:
        if isinstance(decoded, str):
            path = str(candidate.path)
            aside.append(SourceFile(path=path, status="unusable", rank=candidate.name_rank, reason=decoded))
            continue
        # the label of a process in a merged file takes the place of a file name
        read += [(replace(candidate, name=t.part) if t.part else candidate, t) for t in decoded]
    return _sorted_out(read, given, aside)


def _given(candidates: Sequence[Candidate], ranks: Mapping[Path, int]) -> dict[Path, int]:
    """Return the user's ranks by resolved path; a file may be named by its path, or by the end of it."""
    given: dict[Path, int] = {}
    for path, rank in ranks.items():
        known = [c.path.resolve() for c in candidates]
        fits = [k for k in known if k == path.resolve()] or [
            k for k in known if path.parts == k.parts[len(k.parts) - len(path.parts) :]
        ]
        if len(fits) != 1:
            many = f"names {len(fits)} traces; write more of its path" if fits else "is none of the traces found"
            raise ConfigError(f"--rank {path}={rank}: {path} {many}")
        given[fits[0]] = rank
    return given


def _sorted_out(
    read: Sequence[tuple[Candidate, RankTrace]], given: Mapping[Path, int], sources: list[SourceFile]
) -> LoadResult:
    """Remove copies and other jobs, and determine rank and window of each trace."""
    doubles = copies(read)
    for index, kept in doubles.items():
        reason = f"the same recording as {read[kept][1].source}, which is used"
        sources.append(_source(read[index][1], "unusable", reason))
        name_rank = read[index][0].name_rank
        # it should have been the trace of that rank
        sources[-1].rank = sources[-1].rank if name_rank is None else name_rank
    read = [pair for index, pair in enumerate(read) if index not in doubles]
    others, notes = other_jobs(read)
    sources += [_source(read[index][1], "ignored", reason) for index, reason in others.items()]
    read = [pair for index, pair in enumerate(read) if index not in others]
    identities = assign_ranks(read, given)
    unassigned: list[RankTrace] = []
    known: list[tuple[Candidate, RankTrace]] = []
    how: dict[int, FileRank] = {}
    for pair, identity in zip(read, identities, strict=True):
        trace = pair[1]
        if trace.rank is None:
            unassigned.append(trace)
            sources.append(_source(trace, "unassigned", identity.how))
        else:
            known.append(pair)
            how[id(trace)] = identity
    traces: list[RankTrace] = []
    decided = list(assign_windows(known))
    alone: list[RankTrace] = []
    if all(candidate.window is None for candidate, _ in known):
        alone = left_alone([trace for trace, rival in decided if rival is None])
    for trace, rival in decided:
        if any(trace is one for one in alone):
            sources.append(_source(trace, "ignored", _ALONE))
        elif rival is None:
            traces.append(trace)
            how_ranked = how[id(trace)].how
            words = "; ".join([how_ranked, *(n for n in trace.notes if n != how_ranked)])
            sources.append(_source(trace, "used", words))
        else:
            sources.append(_source(trace, "unusable", f"{rival} is the same rank and window; only that one is used"))
    if alone:
        notes.append(f"{', '.join(Path(t.source).name for t in alone[:4])}{' ...' * (len(alone) > 4)}: {_ALONE}")
    if all(candidate.window is None for candidate, _ in known):
        notes += other_processes(traces)
    traces.sort(key=lambda t: (t.attempt, t.window, -1 if t.rank is None else t.rank))
    agree_on_peers(traces)
    return LoadResult(traces, sources, unassigned, notes=notes)


def _source(
    trace: RankTrace, status: Literal["used", "ignored", "unusable", "unassigned"], reason: str | None
) -> SourceFile:
    return SourceFile(path=trace.source, status=status, rank=trace.rank, reason=reason, repairs=dict(trace.repairs))


def _read_all(
    candidates: Sequence[Candidate], workers: int | None, cache: bool | Path, executor: Executor | None
) -> Iterator[tuple[int, Decoded]]:
    """Yield index and trace (or the reason why there is none) of each candidate, in order of completion."""
    fresh: list[int] = []
    for index, candidate in enumerate(candidates):
        trace = load_cached(candidate.path, _folder(cache)) if cache else None
        if trace is None:
            fresh.append(index)
        else:
            yield index, [trace]
    fresh.sort(key=lambda i: -weight(candidates[i].path))  # the longest first, so that no process gets it last
    done: set[int] = set()
    if executor is not None:
        for index, result in _elsewhere(candidates, fresh, cache, executor):
            done.add(index)
            yield index, result
        fresh = [index for index in fresh if index not in done]
    count = process_count(workers, [weight(candidates[i].path) for i in fresh]) if executor is None else 1
    if count > 1:
        try:
            for index, result in _shared(candidates, fresh, cache, count - 1):
                done.add(index)
                yield index, result
        except BrokenProcessPool:  # a worker was killed for its memory
            pass
    for index in fresh:
        if index not in done:
            yield index, read_one(candidates[index], cache)


def _elsewhere(
    candidates: Sequence[Candidate], fresh: Sequence[int], cache: bool | Path, executor: Executor
) -> Iterator[tuple[int, Decoded]]:
    """Yield what an engine's workers read; a file whose worker died, or cannot see it, is left out."""
    futures = {executor.submit(read_one, candidates[index], cache): index for index in fresh}
    for future in as_completed(futures):
        if not future.cancelled() and future.exception() is None and not isinstance(result := future.result(), str):
            yield futures[future], result


def _shared(
    candidates: Sequence[Candidate], fresh: Sequence[int], cache: bool | Path, helpers: int
) -> Iterator[tuple[int, Decoded]]:
    """Read in this process and in workers; starting a worker, and fetching its columns, costs as much as 50 MB of
    JSON."""
    with worker_pool(helpers) as pool:
        futures = {pool.submit(read_one, candidates[i], cache): i for i in fresh[1:]}
        waiting = list(futures)
        own: int | None = fresh[0]
        while own is not None:
            yield own, read_one(candidates[own], cache)
            # then a file that no worker has begun, the shortest first
            own = futures.pop(last) if waiting and (last := waiting.pop()).cancel() else None
        for future in as_completed(futures):
            yield futures[future], future.result()


def read_one(candidate: Candidate, cache: bool | Path = False) -> Decoded:
    """Read one file. No error is raised."""
    try:
        traces = BY_NAME[candidate.format].read(candidate.path)
    except TraceError as error:
        return str(error)
    except Exception as error:  # an unforeseen error affects this file only
        return f"{candidate.path}: cannot be decoded ({type(error).__name__}: {error}); please report this file"
    if cache and len(traces) == 1:
        store_cached(candidate.path, traces[0], _folder(cache))
    return traces


def _folder(cache: bool | Path) -> Path | None:
    return cache if isinstance(cache, Path) else None


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def weight(path: Path) -> int:
    """Return the approximate size of the text in a file, in bytes."""
    size = _size(path)
    return size * _PACKED_WEIGHT if path.suffix == ".gz" else size


def process_count(workers: int | None, weights: list[int]) -> int:
    """Return the number of processes to work on files, including this one: as requested, or as many as are
    worthwhile."""
    if workers is None:
        if sum(weights) < _WORTH_A_PROCESS or multiprocessing.current_process().daemon:
            return 1
        workers = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min(workers, len(weights)))
