"""Processes of this machine that share work, and end with the process that started them.

Workers of :mod:`concurrent.futures` outlive a process that is killed: they work through what was submitted, and then
wait forever. These hold one end of a pipe whose other end only the caller has. When that closes, or a signal ends a
worker, it removes the files that it had not finished, and ends.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing.connection import Connection
from types import FrameType

from rankscope import own_process
from rankscope.rundir.files import remove_unfinished

__all__ = ["worker_pool"]


@contextlib.contextmanager
def worker_pool(count: int) -> Iterator[ProcessPoolExecutor]:
    """Start worker processes for the block. If it ends with an error, they end at once; otherwise after their work.

    Args:
        count: number of processes.
    """
    # Never fork: the caller may have threads, a CUDA context or an open profiler.
    spawning = multiprocessing.get_context("spawn")
    theirs, ours = spawning.Pipe(duplex=False)
    with own_process.safe_spawn(), theirs, ours:
        pool = ProcessPoolExecutor(count, mp_context=spawning, initializer=_begin, initargs=(theirs,))
        try:
            yield pool
        except BaseException:
            ours.close()
            raise
        finally:
            pool.shutdown(cancel_futures=ours.closed)


def _begin(parent: Connection) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the caller too, which closes the pipe
    signal.signal(signal.SIGTERM, _end)
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()


def _end_with(parent: Connection) -> None:
    with contextlib.suppress(OSError):
        parent.poll(None)
    remove_unfinished()
    os._exit(1)


def _end(number: int, _frame: FrameType | None) -> None:
    remove_unfinished()
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)
