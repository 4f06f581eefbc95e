"""Engine that uses processes of this machine."""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import Executor
from contextlib import contextmanager

from rankscope.engines.base import Engine
from rankscope.errors import ConfigError
from rankscope.worker_pool import worker_pool

__all__ = ["ENGINE"]


@contextmanager
def _open(address: str, workers: int | None) -> Iterator[Executor]:
    if address:
        raise ConfigError(f"--address {address}: the local engine has none; name another --engine, dask for instance")
    count = workers or (len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1)
    with worker_pool(count) as pool:
        yield pool


ENGINE = Engine(name="local", about="processes of this machine (the default)", open=_open)
