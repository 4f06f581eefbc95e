"""Engine that uses the workers of Dask: a running cluster, or processes of this machine."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from concurrent.futures import Executor
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

from rankscope import __version__
from rankscope.engines.base import Engine, missing_package
from rankscope.errors import ConfigError

__all__ = ["ENGINE"]

_WAIT_S = 30
"""Time limit for the scheduler to answer, seconds."""
_WORKERS_S = 600
"""Time limit for a worker to be free, seconds: a cluster that grows with its work first has to start one."""


@contextmanager
def _open(address: str, workers: int | None) -> Iterator[Executor]:
    try:
        distributed: Any = import_module("distributed")
    except ImportError:
        raise missing_package("dask", "distributed", "dask") from None
    try:
        # before a client exists: one that cannot be connected takes a minute to close
        where = _where(distributed, address, workers)
        client = distributed.Client(timeout=_WAIT_S, set_as_default=False, **where)
    except (OSError, TimeoutError, ValueError) as error:
        raise ConfigError(f"--address {address}: no scheduler of Dask answers there ({error})") from error
    with client:
        if address:
            _check(client, address)
        with client.get_executor(pure=False) as executor:
            yield executor


def _check(client: Any, address: str) -> None:
    """Wait for a worker, and compare the version of rankscope on all workers with this one: without it a worker fails
    each task, again and again.

    Raises:
        ConfigError: there is no worker, or one that lacks this version.
    """
    try:
        client.submit(int, pure=False).result(timeout=_WORKERS_S)
    except (TimeoutError, asyncio.TimeoutError) as error:
        raise ConfigError(
            f"--address {address}: the scheduler of Dask had no free worker for {_WORKERS_S} s; start some, in an "
            "environment with rankscope"
        ) from error
    found = client.run(eval, "getattr(__import__('rankscope'), '__version__', 'unknown')", on_error="return")
    for worker, version in found.items():
        if version != __version__:
            what = "cannot load rankscope" if isinstance(version, Exception) else "has another version of rankscope"
            raise ConfigError(
                f"--address {address}: the worker {worker} {what} ({version}); install rankscope {__version__}, the "
                "version of this process, on all workers"
            )


def _where(distributed: Any, address: str, workers: int | None) -> dict[str, Any]:
    """Return the arguments of the client for a scheduler's address or file; without one, workers on this machine.

    Raises:
        ValueError: the address cannot be one.
        OSError: there is no such file.
    """
    if not address:
        return {"n_workers": workers, "threads_per_worker": 1, "dashboard_address": None}
    if Path(address).is_file():
        return {"scheduler_file": address}
    scheme, found, _ = address.partition("://")
    if found:
        distributed.comm.registry.get_backend(scheme)
    elif "/" in address or address.endswith(".json"):
        raise FileNotFoundError("there is no such file")
    return {"address": address}


ENGINE = Engine(name="dask", about="a cluster of Dask: --address SCHEDULER or its scheduler file", open=_open)
