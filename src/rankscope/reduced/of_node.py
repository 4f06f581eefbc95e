"""The process that reduces what a node recorded in a window: ``rankscope.reduced.of_node TASK``.

The node helper starts it beside the running job, so it has the lowest priority, one process, one trace in memory at a
time, and a memory limit: a trace that does not fit is kept instead of reduced. The task is a file of the spool;
standard output gets the ranks whose columns are in the object, as JSON.
"""

from __future__ import annotations

import contextlib
import resource
import sys
from collections.abc import Sequence
from pathlib import Path

from rankscope import own_process
from rankscope.records.codec import from_json, to_json
from rankscope.records.running.node_task import ReducedRanks, ReduceTask
from rankscope.trace.files.find import Candidate
from rankscope.trace.files.formats import recognise
from rankscope.trace.files.load import read_one
from rankscope.trace.files.objects import ObjectWriter, ReducedFile

__all__ = ["main", "reduce_window"]

_LEAST_MEMORY = 4 << 30
"""Limit of the address space, most of which libraries reserve and never use."""
_MEMORY_A_BYTE = 12
"""Largest memory per byte of text while a trace is read."""
_HEAD = 1 << 20


def main(task_path: str) -> None:
    """Reduce, and print the ranks that were reduced."""
    own_process.give_way()
    task = from_json(ReduceTask, Path(task_path).read_bytes())
    largest = max((Path(path).stat().st_size for path in task.traces), default=0)
    with contextlib.suppress(ValueError, OSError):  # a lower limit is set already
        limit = _LEAST_MEMORY + _MEMORY_A_BYTE * largest
        resource.setrlimit(resource.RLIMIT_AS, (limit, resource.getrlimit(resource.RLIMIT_AS)[1]))
    sys.stdout.write(to_json(ReducedRanks(ranks=reduce_window(task)), indent=None))


def reduce_window(task: ReduceTask) -> list[int]:
    """Make the object, and return the ranks in it, which lack those that could not be read.

    Raises:
        OSError: the object cannot be written.
    """
    ranks: list[int] = []
    with ObjectWriter.open(Path(task.target)) as writer:
        for rank, name, path in zip(task.ranks, task.names, task.traces, strict=True):
            file = _reduced(task, rank, name, Path(path), writer)
            if file is not None:
                writer.contents.files.append(file)
                ranks.append(rank)
    return ranks


def _reduced(task: ReduceTask, rank: int, name: str, path: Path, writer: ObjectWriter) -> ReducedFile | None:
    with path.open("rb") as stream:
        form = recognise(stream.read(_HEAD))
    if form is None:
        return None
    shown = f"attempt_{task.attempt}/window_{task.window:03d}/{name}"
    decoded = read_one(Candidate(path, shown, rank, form.name, task.attempt, task.window))
    if isinstance(decoded, str) or any(trace.repairs for trace in decoded):
        return None  # a corrupt trace is kept unchanged
    return ReducedFile(
        path=f"../{name}",
        name=shown,
        name_rank=rank,
        format=form.name,
        attempt=task.attempt,
        window=task.window,
        members=[writer.add(trace) for trace in decoded],
    )


def _arguments(words: Sequence[str]) -> str:
    (path,) = words
    return path


if __name__ == "__main__":
    main(_arguments(sys.argv[1:]))
