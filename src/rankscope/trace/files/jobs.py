"""Files that do not belong to the job: copies of a recording, and traces of other jobs in the same folder.

A step time or a cost over two jobs is valid for neither, so a report covers one of them.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Hashable, Sequence
from pathlib import PurePosixPath

import numpy as np

from rankscope.trace.columns import RankTrace
from rankscope.trace.files.find import Candidate
from rankscope.trace.files.naming import parse_name, rank_of_name, without_rank
from rankscope.trace.files.windows import overlapping

__all__ = ["copies", "other_jobs"]

Read = tuple[Candidate, RankTrace]
_PLACE_WORDS = {"rank", "local", "node", "count", "master", "pod"}


def copies(read: Sequence[Read]) -> dict[int, int]:
    """Return index of a file -> index of the file with the same recording that is kept.

    Two processes do not record the same events at the same nanoseconds with the same ids.
    """
    alike: dict[Hashable, list[int]] = defaultdict(list)
    for index, (candidate, trace) in enumerate(read):
        if candidate.window is not None:
            continue  # the layout of a run directory has each recording once
        events = trace.events
        key = len(events), int(events.start[0]), trace.meta.rank
        alike[key].append(index)
    found: dict[int, int] = {}
    for indices in alike.values():
        indices.sort(key=lambda i: _preference(*read[i]))
        for place, index in enumerate(indices[1:], 1):
            kept = next((i for i in indices[:place] if i not in found and _same(read[i][1], read[index][1])), None)
            if kept is not None:
                found[index] = kept
    return found


def _preference(candidate: Candidate, trace: RankTrace) -> tuple[bool, int, int, str]:
    """Sort key: files whose name states the content's rank first, then by depth and length of the path."""
    contradicted = trace.meta.rank is not None and candidate.name_rank not in (None, trace.meta.rank)
    return contradicted, candidate.name.count("/"), len(candidate.name), candidate.name


def _same(one: RankTrace, other: RankTrace) -> bool:
    pairs = ((getattr(one.events, c), getattr(other.events, c)) for c in ("start", "duration", "pid", "tid"))
    return one.part == other.part and all(np.array_equal(a, b) for a, b in pairs)


def other_jobs(read: Sequence[Read]) -> tuple[dict[int, str], list[str]]:
    """Return index of each file of another job -> why it is left out, and remarks on the jobs.

    Jobs are distinguished by their number of ranks, and by folders if the files of each folder are different ranks and
    those of different folders the same ranks at the same time. The job with most files is kept.
    """
    foreign = [i for i, (candidate, _) in enumerate(read) if candidate.window is None]
    keys: list[str] = []  # the job of each file, in words; empty if the file does not show it
    own = [read[i] for i in foreign]
    sizes = _worlds([trace for _, trace in own])
    if _sizes_differ(own, sizes):
        keys = ["" if s is None else f"the job of {s} ranks" for s in sizes]
        why = "the world sizes differ"
    else:
        windows = overlapping([trace for _, trace in own])
        folders = _job_folders(own, windows) or _replicas(own, windows) or _stems(own, windows)
        if folders is None:
            return {}, []
        keys, why = folders
    count = Counter(key for key in keys if key)
    kept = max(count, key=lambda k: (count[k], -keys.index(k)))
    left = {
        index: f"a trace of another job ({key}, the report is on {kept}); analyse it by itself"
        for index, key in zip(foreign, keys, strict=True)
        if key not in ("", kept)
    }
    others = ", ".join(f"{key} ({files} files)" for key, files in count.items() if key != kept)
    note = (
        f"the traces are of different jobs, as {why}: this report is on {kept} ({count[kept]} files); left out: "
        f"{others}; analyse each job by itself"
    )
    return left, [note]


def _sizes_differ(read: Sequence[Read], sizes: Sequence[int | None]) -> bool:
    """Return whether files of different world sizes are the same ranks, or are in different folders.

    Otherwise they complement each other: a process without knowledge of its job records a world size of one.
    """
    ranks: dict[int | None, set[int]] = defaultdict(set)
    folders: dict[str, set[int]] = defaultdict(set)
    for (candidate, trace), world in zip(read, sizes, strict=True):
        if world is not None:
            ranks[trace.meta.rank if trace.meta.rank is not None else candidate.name_rank].add(world)
            folders[candidate.name.rpartition("/")[0]].add(world)
    apart = len(folders) > 1 and all(len(own) == 1 for own in folders.values())
    return len(set(sizes) - {None}) > 1 and (
        apart or any(len(own) > 1 for rank, own in ranks.items() if rank is not None)
    )


def _worlds(traces: Sequence[RankTrace]) -> list[int | None]:
    """Return for each trace the number of ranks in the content; None if its own process groups have ranks beyond it,
    because the process did not know its job when the recording began."""
    groups = {id(g.ranks): g.ranks for t in traces for g in t.groups}  # thousands of ranks have one list in common
    last = {key: max(ranks, default=-1) for key, ranks in groups.items()}
    worlds = [(t.meta.world_size, max((last[id(g.ranks)] for g in t.groups), default=-1)) for t in traces]
    return [world if world is None or highest < world else None for world, highest in worlds]


def _claims(read: Sequence[Read]) -> list[int | None]:
    """Return the rank of each file, by its content or its own name."""
    return [t.meta.rank if t.meta.rank is not None else rank_of_name(PurePosixPath(c.name).name) for c, t in read]


def _replicas(read: Sequence[Read], windows: Sequence[int]) -> tuple[list[str], str] | None:
    """Return the replica of each file, in words, and how it was found; None if there is one job.

    An inference server runs one job per replica: each has all its ranks, and the names state the replica.
    """
    ranks = [t.meta.rank for _, t in read]
    worlds = {t.meta.world_size for _, t in read}
    if None in ranks or len(worlds) != 1 or None in worlds or _distinct(ranks, windows, [""] * len(read)):
        return None
    whole = set(range(worlds.pop() or 0))
    if any(max(g.ranks, default=0) not in whole for _, t in read for g in t.groups):
        return None  # process groups exceed the world size in the content, so the process did not know its job
    words = [parse_name(c.name).words for c, _ in read]
    for key in sorted(set.intersection(*(set(w) for w in words))):
        values = [f"{key} {w[key]}" for w in words]
        groups = {v: {r for r, own in zip(ranks, values, strict=True) if own == v} for v in values}
        if len(groups) > 1 and all(g == whole for g in groups.values()) and _distinct(ranks, windows, values):
            return [f"the job of {v}" for v in values], f"each {key} of the names holds all ranks of a job"
    return None


def _stems(read: Sequence[Read], windows: Sequence[int]) -> tuple[list[str], str] | None:
    """Return the job of each file by its name without the rank (``a_rank0``, ``b_rank0``), and how it was found.

    None if there is one job, or if the names do not assign several ranks to each.
    """
    ranks = _claims(read)
    if None in ranks or _distinct(ranks, windows, [""] * len(read)):
        return None
    stems = [without_rank(c.name) for c, _ in read]
    groups = {stem: {r for r, own in zip(ranks, stems, strict=True) if own == stem} for stem in stems}
    if "" in groups or min(map(len, groups.values())) < 2 or not _distinct(ranks, windows, stems):
        return None
    return [f"the job of the files {stem}" for stem in stems], "the files of each name hold the same ranks"


def _job_folders(read: Sequence[Read], windows: Sequence[int]) -> tuple[list[str], str] | None:
    """Return the job of each file by its folder, in words, and how it was found; None if there is one job."""
    ranks = _claims(read)
    if _distinct(ranks, windows, [""] * len(read)):
        return None
    depth = max(c.name.count("/") for c, _ in read)
    for level in range(1, depth + 1):
        folders = ["/".join(c.name.split("/")[:-1][:level]) for c, _ in read]
        named = any(_PLACE_WORDS & parse_name(f.split("/")[-1]).words.keys() for f in set(folders))
        several = max(len({r for f, r in zip(folders, ranks, strict=True) if f == g}) for g in folders) > 1
        alone = all(t.meta.world_size == 1 for _, t in read)
        if len(set(folders)) > 1 and not named and (several or alone) and _distinct(ranks, windows, folders):
            return [f"the job in {f}" for f in folders], "the folders hold the same ranks at the same time"
    return None


def _distinct(ranks: Sequence[int | None], windows: Sequence[int], folders: Sequence[str]) -> bool:
    """Return whether within each folder no rank has two recordings of the same time."""
    claims = Counter(zip(folders, windows, ranks, strict=True))
    return all(count == 1 or rank is None for (_, _, rank), count in claims.items())
