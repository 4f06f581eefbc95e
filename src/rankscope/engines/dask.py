"""Engine that uses the workers of Dask: a running cluster, or processes of this machine."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Executor
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

from rankscope.engines.base import Engine, missing_package
from rankscope.errors import ConfigError

__all__ = ["ENGINE"]

_WAIT_S = 30
"""Time limit for the scheduler to answer, seconds."""


@contextmanager
def _open(address: str, workers: int | None) -> Iterator[Executor]:
    try:
        distributed: Any = import_module("distributed")
    except ImportError:
        raise missing_package("dask", "distributed", "dask") from None
    try:
        client = distributed.Client(timeout=_WAIT_S, set_as_default=False, **_where(address, workers))
    except (OSError, TimeoutError, ValueError) as error:
        raise ConfigError(f"--address {address}: no scheduler of Dask answers there ({error})") from error
    with client, client.get_executor(pure=False) as executor:
        yield executor


def _where(address: str, workers: int | None) -> dict[str, Any]:
    """Return the arguments of the client for a scheduler's address or file; without one, workers on this machine."""
    if not address:
        return {"n_workers": workers, "threads_per_worker": 1, "dashboard_address": None}
    return {"scheduler_file": address} if Path(address).is_file() else {"address": address}


ENGINE = Engine(name="dask", about="a cluster of Dask: --address SCHEDULER or its scheduler file", open=_open)
