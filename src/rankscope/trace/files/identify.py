"""Identify the rank of each file: by what the user gave, the content, its process groups, and the file names.

Recorded identities can be wrong. The content takes precedence. If it contradicts itself (two processes of one rank at
the same time, a rank outside of its own process groups) and the names do not, the names are used. If nothing decides,
the file stays without a rank. How the rank was determined is reported for every file.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from rankscope.trace.columns import RankTrace
from rankscope.trace.files.find import Candidate
from rankscope.trace.files.naming import Naming, naming_schemes, parse_name, rank_of_name
from rankscope.trace.files.windows import main_process, overlapping

__all__ = ["NAME_CONFLICT", "UNKNOWN", "FileRank", "assign_ranks"]

NAME_CONFLICT = "rank of the file name contradicts the content"
"""A kind of ``RankTrace.repairs``."""

UNKNOWN = (
    "neither the content nor the name says which rank this is; name the file like rank_0.json, or give --rank FILE=RANK"
)


@dataclass(slots=True)
class FileRank:
    """The rank of one file, and how it was determined."""

    rank: int | None
    how: str
    """How it was determined; for a file without a rank, why it was not."""


@dataclass(frozen=True, slots=True)
class _File:
    trace: RankTrace
    naming: Naming
    named: int | None
    """Rank by a word in the name."""
    groups: frozenset[int]
    """Ranks that are in all process groups this process is in; empty if the content names none."""
    process: tuple[str | None, int]
    """Host and process id."""
    window: int
    """Number of the period of time in which recordings overlap."""

    @property
    def said(self) -> int | None:
        """Rank by the content."""
        return self.trace.meta.rank

    def against(self, rank: int) -> str | None:
        """Return why this is not the rank, by the process groups and the number of ranks."""
        world = self.trace.meta.world_size
        if self.groups and rank not in self.groups:
            return f"is in none of its process groups (ranks {', '.join(map(str, sorted(self.groups)[:8]))})"
        return f"a job of {world} ranks does not have" if world is not None and rank >= world else None

    def overlaps(self, other: _File) -> bool:
        """Return whether both recordings were open at the same time."""
        one, two = self.trace.events, other.trace.events
        return bool(one.start[0] <= two.end.max() and two.start[0] <= one.end.max())


def assign_ranks(read: Sequence[tuple[Candidate, RankTrace]], given: Mapping[Path, int]) -> list[FileRank]:
    """Determine the rank of each trace and set it; conflicts become notes of the trace.

    Args:
        read: files and their traces, without copies.
        given: resolved path -> rank, by the user, which takes precedence over everything else.
    """
    identities: list[FileRank | None] = [_given(candidate, trace, given) for candidate, trace in read]
    open_places = [i for i, (candidate, _) in enumerate(read) if candidate.window is None]
    files = _files([read[i] for i in open_places])
    known = [identities[i] for i in open_places]
    for place, decided in zip(open_places, _foreign(files, known), strict=True):
        identities[place] = decided
    result = []
    for (candidate, trace), identity in zip(read, identities, strict=True):
        final = identity or FileRank(None, UNKNOWN)
        trace.rank = final.rank
        _note_conflicts(trace, rank_of_name(candidate.name), final)
        result.append(final)
    return result


def _given(candidate: Candidate, trace: RankTrace, given: Mapping[Path, int]) -> FileRank | None:
    """Return the rank that the user gave, or, in a run directory, that of its layout if the content has none."""
    if given and not trace.part and (rank := given.get(candidate.path.resolve())) is not None:
        return FileRank(rank, "rank given by --rank")
    if candidate.window is None:
        return None
    if trace.meta.rank is not None:
        return FileRank(trace.meta.rank, "rank by the content")
    return FileRank(candidate.name_rank, "rank by the place in the run directory")


def _files(read: Sequence[tuple[Candidate, RankTrace]]) -> list[_File]:
    windows = overlapping([trace for _, trace in read])
    return [
        _File(
            trace=trace,
            naming=parse_name(candidate.name),
            named=rank_of_name(candidate.name),
            groups=_own_groups(trace),
            process=(trace.meta.host, main_process(trace)),
            window=window,
        )
        for (candidate, trace), window in zip(read, windows, strict=True)
    ]


def _own_groups(trace: RankTrace) -> frozenset[int]:
    """Return the ranks that are in all process groups used by calls of this process."""
    used = np.unique(trace.collectives.group)
    ranks = [frozenset(trace.groups[g].ranks) for g in used[used >= 0].tolist() if trace.groups[g].ranks]
    return frozenset.intersection(*ranks) if ranks else frozenset()


def _foreign(files: Sequence[_File], known: Sequence[FileRank | None]) -> list[FileRank]:
    """Return the identities of files outside run directories; those in ``known`` were given."""
    found = _by_content(files, known)
    if all(found):
        return [i for i in found if i is not None]
    found = _by_word(files, found)
    found = _by_groups(files, found)
    return _by_scheme(files, found)


def _by_content(files: Sequence[_File], known: Sequence[FileRank | None]) -> list[FileRank | None]:
    """Return the ranks in the contents, unless impossible: a rank has one process at a time, and is in its own
    groups."""
    found = list(known)
    claims: dict[int, list[int]] = defaultdict(list)
    for place, file in enumerate(files):
        if known[place] is None and file.said is not None:
            claims[file.said].append(place)
    for rank, places in claims.items():
        if _cannot_be_one([files[p] for p in places]):
            continue
        for place in places:
            file, other = files[place], files[place].named
            why = file.against(rank)
            free = other is not None and other not in claims and file.against(other) is None
            if why and free and other is not None:
                found[place] = FileRank(other, f"rank by the name: the content says rank {rank}, which {why}")
            else:
                found[place] = FileRank(rank, "rank by the content")
    return found


def _cannot_be_one(files: Sequence[_File]) -> bool:
    """Return whether files with one rank are of several processes at a time, or of several ranks by all their names."""
    names = [f.named for f in files]
    if len(files) < 2 or len({f.process for f in files}) == 1 == len(set(names)):
        return False
    if None not in names and len(set(names)) == len(names):
        return True
    return any(
        a.window == b.window and a.process != b.process and -1 not in (a.process[1], b.process[1]) and a.overlaps(b)
        for place, a in enumerate(files)
        for b in files[:place]
    )


def _by_word(files: Sequence[_File], known: Sequence[FileRank | None]) -> list[FileRank | None]:
    """Return ranks that the names state by a word, unless two processes at a time would have one rank."""
    found = list(known)
    taken = {(f.window, i.rank) for f, i in zip(files, known, strict=True) if i is not None}
    claims: dict[tuple[int, int], set[tuple[str | None, int]]] = defaultdict(set)
    for file, identity in zip(files, known, strict=True):
        if identity is None and file.named is not None:
            claims[(file.window, file.named)].add(file.process)
    for place, file in enumerate(files):
        if found[place] is not None or file.named is None:
            continue
        if (file.window, file.named) in taken or len(claims[(file.window, file.named)]) > 1:
            continue
        how = "rank by the name"
        if file.said is not None:
            how += f": the content of several processes of the same time says rank {file.said}"
        found[place] = FileRank(file.named, how)
    return found


def _by_groups(files: Sequence[_File], known: Sequence[FileRank | None]) -> list[FileRank | None]:
    """Return the rank of a process if only one rank is in all its process groups."""
    found = list(known)
    taken = {(f.window, i.rank) for f, i in zip(files, known, strict=True) if i is not None}
    only = [next(iter(f.groups)) if len(f.groups) == 1 and f.trace.meta.world_size != 1 else None for f in files]
    # The group of rank 0 alone is also what a job of one process has, which says nothing about this job.
    only = [
        r if r != 0 or any(len(g.ranks) > 1 for g in f.trace.groups) else None for r, f in zip(only, files, strict=True)
    ]
    claims = Counter((f.window, rank) for f, rank in zip(files, only, strict=True))
    for place, (file, rank) in enumerate(zip(files, only, strict=True)):
        if found[place] is not None or rank is None or (file.window, rank) in taken:
            continue
        if claims[(file.window, rank)] == 1:
            found[place] = FileRank(rank, "rank by the process groups: it is the only one that is in all of them")
    return found


def _by_scheme(files: Sequence[_File], known: Sequence[FileRank | None]) -> list[FileRank]:
    """Return the ranks by an interpretation of all names together that does not contradict known ranks."""
    if not any(i is None for i in known):
        return [i for i in known if i is not None]
    if _one_process(files) and all(i is None for i in known):
        why = "the only process, and nothing says its rank: called rank 0"
        return [FileRank(0, why) for _ in files]
    schemes, doubt = naming_schemes(
        [f.naming for f in files],
        [f.window for f in files],
        [f.trace.meta.world_size for f in files],
        [f.groups for f in files],
    )
    for scheme in schemes:
        ranks = scheme.ranks
        if all(i is None or i.rank == r for i, r in zip(known, ranks, strict=True)):
            return [i or FileRank(r, f"rank by {scheme.how}") for i, r in zip(known, ranks, strict=True)]
    return [i or FileRank(None, _why_unknown(f, doubt)) for f, i in zip(files, known, strict=True)]


def _one_process(files: Sequence[_File]) -> bool:
    """Return whether these are one file, or consecutive windows of one process."""
    apart = len({f.window for f in files}) == len(files)
    return len(files) == 1 or (apart and len({f.process for f in files}) == 1)


def _why_unknown(file: _File, doubt: str | None) -> str:
    remedy = "give --rank FILE=RANK"
    if file.said is not None:
        return (
            f"which rank this is is not known: the content says rank {file.said}, as that of another process at the "
            f"same time does; {remedy}"
        )
    return f"which rank this is is not known: {doubt}; {remedy}" if doubt else UNKNOWN


def _note_conflicts(trace: RankTrace, named: int | None, identity: FileRank) -> None:
    stated, rank = trace.meta.rank, identity.rank
    if rank is None:
        return
    if stated is not None and stated != rank:
        trace.repairs[NAME_CONFLICT] = trace.repairs.get(NAME_CONFLICT, 0) + 1
        trace.notes.append(f"the content says rank {stated}; {identity.how}")
    elif named is not None and named != rank and stated == rank:
        trace.repairs[NAME_CONFLICT] = trace.repairs.get(NAME_CONFLICT, 0) + 1
        trace.notes.append(f"the file name says rank {named}, the content rank {stated}: the content is believed")
    elif stated is None and identity.how != "rank by the name":
        trace.notes.append(identity.how)
