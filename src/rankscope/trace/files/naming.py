"""Ranks in the names of trace files: a rank, coordinates in a mesh, a node and a local rank, or a counter.

A name is the path below the given folder, so ``rank0/trace.json`` contains as much as ``rank0.json``. A single name
shows a rank only by the word for it. All other interpretations depend on how the names of one window differ.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations, permutations
from math import prod
from typing import TypeVar

T = TypeVar("T")

__all__ = ["RANK_WORDS", "Naming", "Scheme", "naming_schemes", "parse_name", "rank_of_name", "without_rank"]

# From the slowest to the fastest dimension in the order of ranks, as far as frameworks agree: tensor parallel ranks are
# always neighbours. Megatron and torchtitan have pipeline stages outermost, vLLM the replicas; so the order of the
# other dimensions is tried, and must be confirmed by the process groups.
_MESH = ("dp_replicate", "dp_shard", "fsdp", "pcp", "dcp", "etp", "edp", "ep", "pp", "dp", "cp", "sp", "mp", "tp")
_FASTEST = "tp"
_WORDS: tuple[tuple[str, str], ...] = (
    ("master", r"(?<=-)master"),
    ("pod", r"(?<=-)worker"),
    ("local", r"local[_-]?rank|lrank|local|gpu|cuda|device|npu"),
    ("node", r"(?:node|group)[_-]?rank|node|host|machine"),
    *((dim, rf"{dim.replace('_', '[_-]?')}(?:[_-]?rank)?" + "|stage" * (dim == "pp")) for dim in _MESH),
    ("rank", r"(?:global|world)?[_-]?rank|worker"),
    ("count", r"(?<!\d)r|proc(?:ess)?|replica|trainer"),
    ("other", r"pid|seed|of|world[_-]?size|v"),
)
RANK_WORDS = re.compile(
    "(?<![a-z])(?:" + "|".join(f"(?P<{key}>{words})" for key, words in _WORDS) + r")[-_.=: ]?[\[(]?(\d{1,9})(?!\d)",
    re.IGNORECASE,
)
_NUMBER = re.compile(r"([A-Za-z]*)[-_.=: \[(]*(\d{1,19})")
_SUFFIXES = re.compile(r"(?:\.(?:json|trace|pt|gz|tmp|part))+$", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Naming:
    """The numbers in one name."""

    words: Mapping[str, int | None]
    """Kind of number (``rank``, ``local``, ``node``, ``tp`` ...) -> value; None if the name has several."""
    counts: tuple[tuple[str, int], ...]
    """Numbers that follow no known word, in order, each with the letters before it."""


@dataclass(frozen=True, slots=True)
class Scheme:
    """An interpretation of the names of all files in which each has a rank of its own within its window."""

    how: str
    """What it is based on, in words for the report."""
    ranks: list[int] = field(default_factory=list)


def parse_name(name: str) -> Naming:
    """Parse a name: that of a file, with the folders below the given one."""
    text = _SUFFIXES.sub("", name)
    words: dict[str, int | None] = {}
    rest: list[str] = []
    place = 0
    for match in RANK_WORDS.finditer(text):
        rest.append(text[place : match.start()])
        place = match.end()
        key = next(key for key, text in match.groupdict().items() if text is not None)
        value = int(match[match.re.groups])
        words[key] = value if words.get(key, value) == value else None
    rest.append(text[place:])
    counts = [(letters.lower(), int(digits)) for part in rest for letters, digits in _NUMBER.findall(part)]
    return Naming(words, tuple(counts))


def rank_of_name(name: str) -> int | None:
    """Return the rank in a name (``rank_3``, ``rank[3]``, ``worker0_step_12``, ``rank3/trace``).

    The file's own name takes precedence over its folders'. None if there is none, several, or a rank within a node or
    mesh. The worker of ``job-worker-3`` is a pod, whose ranks its number does not state.
    """
    *folders, own = name.split("/")
    for part in (own, *reversed(folders)):
        words = parse_name(part).words
        if "rank" in words:
            return words["rank"]
    return None


def without_rank(name: str) -> str:
    """Return the name with a star for the number of the rank, which is equal for the files of one job; empty without a
    rank."""
    text = _SUFFIXES.sub("", name)
    found = [m for m in RANK_WORDS.finditer(text) if m["rank"] is not None]
    if not found:
        return ""
    last = found[-1]
    number = last.start(last.re.groups)
    return text[:number] + "*" + text[last.end(last.re.groups) :]


def naming_schemes(
    names: Sequence[Naming], windows: Sequence[int], worlds: Sequence[int | None], groups: Sequence[frozenset[int]]
) -> tuple[list[Scheme], str | None]:
    """Return the interpretations of names that do not state the rank by a word.

    Args:
        names: of the files.
        windows: of the files; a rank may occur once in each.
        worlds: number of ranks in each file's job, if in the content.
        groups: ranks that are in all process groups of the file; empty if the content names none.

    Returns:
        The interpretations, the most explicit first, and, if there is none, why.
    """
    world = max((w for w in worlds if w is not None), default=None)
    if world is not None and max(Counter(windows).values()) > world:
        world = None  # more concurrent processes than ranks: the process did not know its job
    places = _Places(names, windows, world, groups)
    found: list[Scheme] = []
    doubt: str | None = None
    for reading in (_node_and_local, _mesh, _pods, _counted):
        scheme = reading(places)
        if isinstance(scheme, Scheme):
            found.append(scheme)
        else:
            doubt = doubt or scheme
    return found, doubt


@dataclass(frozen=True, slots=True)
class _Places:
    names: Sequence[Naming]
    windows: Sequence[int]
    world: int | None
    groups: Sequence[frozenset[int]]

    def column(self, key: str) -> list[int] | None:
        """Return the values of one kind of number; None unless every name has it."""
        values = [n.words.get(key) for n in self.names]
        return None if None in values else [v for v in values if v is not None]

    def by_window(self, values: Sequence[T]) -> Iterator[list[T]]:
        for window in sorted(set(self.windows)):
            yield [v for v, w in zip(values, self.windows, strict=True) if w == window]

    def gapless(self, ranks: Sequence[int]) -> bool:
        """Return whether each window has the ranks from 0 without a gap, and some window several."""
        sets = list(self.by_window(ranks))
        return max(map(len, sets)) > 1 and all(sorted(s) == list(range(len(s))) for s in sets)

    def distinct(self, ranks: Sequence[object]) -> bool:
        return all(len(set(s)) == len(s) for s in self.by_window(ranks))

    def grid(self, columns: Sequence[Sequence[int]]) -> tuple[int, ...] | None:
        """Return the sizes of the mesh with these coordinates; None unless it is complete, or as large as the job."""
        sizes = tuple(max(column) + 1 for column in columns)
        points = list(zip(*columns, strict=True))
        if not self.distinct(points):
            return None
        filled = all(len(window) == prod(sizes) for window in self.by_window(points))
        return sizes if prod(sizes) == self.world or (filled and self.world is None) else None

    def fits(self, ranks: Sequence[int]) -> bool:
        """Return whether each rank is in all process groups of its file, and in its job."""
        inside = all(not g or r in g for r, g in zip(ranks, self.groups, strict=True))
        return inside and (self.world is None or max(ranks) < self.world)


def _node_and_local(places: _Places) -> Scheme | str | None:
    """Interpret as rank = node x processes per node + local rank."""
    local = places.column("local")
    node = places.column("node")
    if local is None and node is not None:  # node0/rank0 and node1/rank0
        ranks = places.column("rank")
        local = ranks if ranks is not None and not places.distinct(ranks) else None
    if local is None:
        return None
    if node is not None:
        sizes = places.grid([node, local])
        ranks = [n * (max(local) + 1) + own for n, own in zip(node, local, strict=True)]
        # on the first node a local rank is a rank, whatever the size of the node
        first = max(node) == 0 and places.distinct(local)
        if (sizes is not None or first) and places.fits(ranks):
            how = "node and local rank in the name, nodes in the order of their numbers"
            return Scheme(how, ranks)
        return "the name says a node and a local rank, which do not fill nodes of one size, counted from 0"
    if places.gapless(local) and places.fits(local) and places.world in (None, max(local) + 1):
        return Scheme("local rank in the name, as there is one node", local)
    return "the name says a local rank, which is no rank of the job"


def _mesh(places: _Places) -> Scheme | str | None:
    """Interpret as mesh coordinates, using the fewest that distinguish the files."""
    said = {d: c for d in _MESH if (c := places.column(d)) is not None}
    columns = {d: c for d, c in said.items() if len(set(c)) > 1}
    if columns and (others := [d for d, c in said.items() if d not in columns and max(c) > 0]):
        return f"the name says mesh coordinates, and files with a smaller {others[0]} are missing"
    for count in range(1, len(columns) + 1):
        readings: dict[tuple[int, ...], str] = {}
        for chosen in combinations(columns, count):
            if places.grid([columns[d] for d in chosen]) is None:
                continue
            for order in permutations(chosen):
                if _FASTEST in order and order[-1] != _FASTEST:
                    continue
                ranks = _ravel([columns[d] for d in order])
                if places.fits(ranks):
                    readings.setdefault(ranks, ", ".join(order))
        if len(readings) == 1:
            ((ranks, order_words),) = readings.items()
            what = "the mesh coordinate" if count == 1 else "the mesh coordinates, slowest first,"
            return Scheme(f"{what} {order_words} in the name", list(ranks))
        if readings:
            ways = " or ".join(f"({words})" for words in sorted(readings.values()))
            return f"the name says mesh coordinates, but not in which order ranks count: {ways}"
    return "the mesh coordinates in the name do not tell the files apart, or leave gaps" if columns else None


def _ravel(columns: Sequence[Sequence[int]]) -> tuple[int, ...]:
    ranks = [0] * len(columns[0])
    for column in columns:
        size = max(column) + 1
        ranks = [r * size + v for r, v in zip(ranks, column, strict=True)]
    return tuple(ranks)


def _pods(places: _Places) -> Scheme | str | None:
    """Interpret pods of Kubeflow's PyTorchJob of one rank each: JOB-master-0 is rank 0, JOB-worker-N is rank N + 1."""
    pods = [0 if n.words.get("master") == 0 else n.words.get("pod") for n in places.names]
    if None in pods or not any("master" in n.words for n in places.names):
        return None
    ranks = [p + ("pod" in n.words) for n, p in zip(places.names, pods, strict=True) if p is not None]
    if places.distinct(ranks) and places.fits(ranks):
        return Scheme("pod in the name, the master of a PyTorchJob being rank 0, and worker N rank N + 1", ranks)
    return "the name says a pod, which has several ranks"


def _counted(places: _Places) -> Scheme | str | None:
    """Interpret a number that counts the files of each window from 0 without a gap."""
    readings: dict[tuple[int, ...], str] = {}
    counted = places.column("count") or places.column("pod")
    if counted is not None and places.gapless(counted) and places.fits(counted):
        readings[tuple(counted)] = "r"
    alike = {tuple(letters for letters, _ in n.counts) for n in places.names}
    if not readings and len(alike) == 1:
        for column in zip(*(n.counts for n in places.names), strict=True):
            values = [v for _, v in column]
            if places.gapless(values) and places.fits(values):
                readings.setdefault(tuple(values), column[0][0])
    if len(readings) == 1:
        ((ranks, _),) = readings.items()
        return Scheme("a number in the name that counts from 0 without a gap", list(ranks))
    return "several numbers in the name count from 0, each in another order" if readings else None
