"""Engine that uses the processes of MPI. Rank 0 runs the command, the other ranks are its workers.

``mpiexec -n N python -m mpi4py.futures -m rankscope reduce ... --engine mpi``
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Executor
from contextlib import contextmanager
from importlib import import_module
from typing import Any

from rankscope.engines.base import Engine, missing_package
from rankscope.errors import ConfigError

__all__ = ["ENGINE"]


@contextmanager
def _open(address: str, workers: int | None) -> Iterator[Executor]:
    try:
        mpi: Any = import_module("mpi4py.MPI")
        futures: Any = import_module("mpi4py.futures")
    except (ImportError, RuntimeError) as error:
        if not isinstance(error, ModuleNotFoundError):  # the package is installed, but not its MPI library
            raise ConfigError(
                f"--engine mpi: no MPI library can be loaded ({error}); install one, or load its module; a wheel of "
                "mpi4py finds Open MPI with MPI4PY_MPIABI=openmpi"
            ) from error
        raise missing_package("mpi", "mpi4py", "mpi") from None
    if address:
        raise ConfigError(f"--address {address}: MPI has none; mpiexec says where its processes run")
    if mpi.COMM_WORLD.Get_size() < 2:
        raise ConfigError(
            "--engine mpi needs two processes and more; start it as "
            "mpiexec -n 8 python -m mpi4py.futures -m rankscope reduce ... --engine mpi"
        )
    with futures.MPIPoolExecutor(max_workers=workers) as pool:
        yield pool


ENGINE = Engine(name="mpi", about="the processes of mpiexec, started with -m mpi4py.futures", open=_open)
