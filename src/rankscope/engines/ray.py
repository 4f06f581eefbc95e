"""Engine that uses a running Ray cluster: each call is a task, which Ray retries if its worker is lost."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future
from contextlib import contextmanager
from importlib import import_module
from typing import Any

from rankscope.engines.base import Engine, missing_package
from rankscope.errors import ConfigError

__all__ = ["ENGINE"]

_WAIT_S = 30
"""Time limit for a cluster's port to answer, seconds."""


class _Tasks(Executor):
    """Executor that runs each call as a task of Ray on one CPU."""

    def __init__(self, ray: Any, most: int | None) -> None:
        self._call = ray.remote(_called)
        self._ray, self._most = ray, most
        self._running: list[Any] = []

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Start a task. If the requested number of workers is busy, wait until one has ended."""
        while self._most and len(self._running) >= self._most:
            _, self._running = self._ray.wait(self._running, num_returns=1)
        task = self._call.remote(fn, args, kwargs)
        if self._most:
            self._running.append(task)
        future: Future[Any] = task.future()
        return future


def _called(fn: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    return fn(*args, **kwargs)


@contextmanager
def _open(address: str, workers: int | None) -> Iterator[Executor]:
    try:
        ray: Any = import_module("ray")
    except ImportError:
        raise missing_package("ray", "ray", "ray") from None
    where = {"address": address} if address else {"num_cpus": workers, "include_dashboard": False}
    starts = not ray.is_initialized()
    if starts:
        _reach(address)
        try:
            ray.init(**where, log_to_driver=False, configure_logging=False)
        except Exception as error:  # Ray raises Exception itself when its processes do not start in time
            raise ConfigError(f"--engine ray: {_not_there(address)} ({error})") from error
    try:
        with _Tasks(ray, workers) as tasks:
            yield tasks
    finally:
        if starts:
            ray.shutdown()


def _reach(address: str) -> None:
    """Connect to an address once, because Ray itself tries for minutes.

    Raises:
        ConfigError: nothing answers there.
    """
    host, _, port = address.rpartition("://")[2].rpartition(":")
    if not host or not port.isdecimal():
        return  # "auto", or the cluster of this machine
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=_WAIT_S).close()
    except (OSError, OverflowError) as error:
        raise ConfigError(f"--engine ray: {_not_there(address)} ({error})") from error


def _not_there(address: str) -> str:
    if address:
        return f"there is no cluster of Ray at {address}; `ray status` shows where one is"
    return (
        "Ray did not start here, for which it gives its own processes 30 s; on a busy machine `ray start --head` "
        "first and then use --address auto, or leave --engine out"
    )


ENGINE = Engine(name="ray", about="a cluster of Ray: --address auto, or one of this machine", open=_open)
