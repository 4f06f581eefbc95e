"""The process that reduces what a node recorded in a window: ``rankscope.reduced.of_node TASK``.

It is started by the node helper beside the running job, so it has the lowest priority, one process, one trace in memory
at a time, and a limit on its memory: a trace that does not fit is left to be kept whole. The task is a file of the
spool; standard output gets the ranks whose columns are in the object, as JSON.
"""

from __future__ import annotations

import contextlib
import os
import resource
import sys
from collections.abc import Sequence
from pathlib import Path

from rankscope.records.codec import from_json, to_json
from rankscope.records.running.node_task import ReducedRanks, ReduceTask
from rankscope.trace.files.find import Candidate
from rankscope.trace.files.formats import recognise
from rankscope.trace.files.load import read_one
from rankscope.trace.files.objects import ObjectWriter, ReducedFile

__all__ = ["main", "reduce_window"]

_LEAST_MEMORY = 4 << 30
"""Of addresses, most of which libraries reserve and never touch."""
_MEMORY_A_BYTE = 12
"""Reading a trace takes up to so many bytes for each of its text."""
_HEAD = 1 << 20


def main(task_path: str) -> None:
    """Reduce, and say of which ranks."""
    with contextlib.suppress(OSError):
        os.nice(19)
    task = from_json(ReduceTask, Path(task_path).read_bytes())
    largest = max((Path(path).stat().st_size for path in task.traces), default=0)
    with contextlib.suppress(ValueError, OSError):  # a lower limit is there already
        limit = _LEAST_MEMORY + _MEMORY_A_BYTE * largest
        resource.setrlimit(resource.RLIMIT_AS, (limit, resource.getrlimit(resource.RLIMIT_AS)[1]))
    sys.stdout.write(to_json(ReducedRanks(ranks=reduce_window(task)), indent=None))


def reduce_window(task: ReduceTask) -> list[int]:
    """Make the object; returns the ranks that are in it. One that could not be read is not.

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
        return None  # what is damaged is kept as it is
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
