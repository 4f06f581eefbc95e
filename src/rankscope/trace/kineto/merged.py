"""Split a file with the processes of several ranks, as merging tools write it, by its process ids.

A profiler writes one process per file, and the devices that it uses. In a merged file the ids are words (``[TP03]
4203``), or are named by metadata events, or are shifted into a range of numbers for each rank. Ids of launches collide
between the ranks, so only the process ids show which rank a kernel belongs to.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rankscope.errors import TraceError
from rankscope.trace.columns import Category

__all__ = ["Process", "by_range", "label_of", "processes"]

I64 = NDArray[np.int64]

_RANK_LABEL = re.compile(r"(?<![a-z])((?:global[ _-]?)?rank|worker|[tpdec]p|pcp|dcp|node)[ _:=\[(-]*\d+", re.IGNORECASE)
_STEP = re.compile(r"ProfilerStep#\d+\Z")
_CALLS = (Category.CUDA_RUNTIME, Category.CUDA_DRIVER)
_DEVICE = (Category.KERNEL, Category.GPU_MEMCPY, Category.GPU_MEMSET)


@dataclass(frozen=True, slots=True)
class Process:
    """One of several processes in a file."""

    label: str
    """Its distinction from the others, to be parsed like a file name."""
    rows: I64
    """Rows of its events."""


def processes(
    columns: Mapping[str, NDArray[np.generic]],
    strings: list[str],
    texts: Mapping[str, int],
    labels: Mapping[int, str],
    source: str,
) -> list[Process]:
    """Return the processes in a file of several ranks; empty for a file of one.

    Args:
        columns: of all events.
        strings: texts of the name codes.
        texts: process and thread ids that are words -> their codes.
        labels: names of the processes in metadata events.
        source: the file, for the error.

    Raises:
        TraceError: there are several processes, and it is unknown to which of them the device work belongs.
    """
    pid, category = columns["pid"].astype(np.int64), columns["category"]
    steps = np.array([code for code, text in enumerate(strings) if _STEP.match(text)], np.int32)
    driving = np.isin(category, _CALLS) | (
        np.isin(category, (Category.USER_ANNOTATION, Category.CPU_OP)) & np.isin(columns["name"], steps)
    )
    hosts = np.unique(pid[driving]).tolist()
    if len(hosts) < 2:
        return []
    every = np.unique(pid).tolist()
    owner = _by_label(hosts, every, {code: text for text, code in texts.items()}, labels)
    if owner is None:
        working = np.unique(pid[np.isin(category, _DEVICE)]).tolist()
        owner = by_range(hosts, working, every)
    if owner is None:
        raise TraceError(
            f"{source}: holds several processes ({', '.join(map(str, hosts[:8]))}), not one rank, and does not say "
            "which device is whose; give the traces of the ranks themselves"
        )
    found = []
    for label in dict.fromkeys(owner.values()):
        mine = [p for p, whose in owner.items() if whose == label]
        found.append(Process(label, np.flatnonzero(np.isin(pid, mine))))
    return found


def _by_label(
    hosts: list[int], every: list[int], words: Mapping[int, str], labels: Mapping[int, str]
) -> dict[int, str] | None:
    """Return process id -> label, if the words in the ids or the file's names for them contain the rank of each host
    process."""
    owner: dict[int, str] = {}
    for pid in every:
        if label := label_of(words.get(pid, ""), labels.get(pid, "")):
            owner[pid] = label
    own = [owner.get(h) for h in hosts]
    return owner if None not in own and len(set(own)) > 1 else None


def label_of(*texts: str) -> str:
    """Return the words for a rank in texts, as one label; empty if there are none."""
    found = [m.group().lower() for text in texts for m in _RANK_LABEL.finditer(text)]
    return " ".join(dict.fromkeys(re.sub(r"[ :=\[(-]+", "_", f) for f in found))


def by_range(hosts: list[int], working: list[int], every: list[int]) -> dict[int, str] | None:
    """Return process id -> label, if the ids of each rank are in a range of their own, counted from 0."""
    for size in (*(10**n for n in range(3, 13)), *(1 << n for n in range(10, 41))):
        ranges = [h // size for h in hosts]
        if sorted(ranges) == list(range(len(hosts))) and {w // size for w in working} in (set(ranges), set()):
            return {p: f"proc_{p // size}" for p in every if p // size in ranges}
    return None
