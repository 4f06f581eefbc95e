"""Client of the fork server, with the interface of ``subprocess.Popen``."""

from __future__ import annotations

import contextlib
import io
import json
import os
import select
import signal
import socket
import subprocess
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

__all__ = ["Forked", "may_be_forked"]

STARTS_WITH = ("GLIBC_", "LD_", "MALLOC_", "PYTHON", "OMP_", "KINETO_", "TORCH_")
"""Variables that are read before Python or torch can run code of the server."""
OF_RANKS = ("PYTHONPATH", "TORCH_NCCL_ASYNC_ERROR_HANDLING")
"""Exceptions: variables that torchrun and rankscope set for a rank, which the server handles."""


def _read_early(environ: Mapping[str, str]) -> dict[str, str]:
    return {k: v for k, v in environ.items() if k.startswith(STARTS_WITH) and k not in OF_RANKS}


def may_be_forked(environ: Mapping[str, str], server: Mapping[str, str], *, ranks: bool = True) -> bool:
    """Whether a process with this environment is the same when it is forked from a server with that one.

    A launcher whose ranks are started needs only that Python itself would be the same in it.
    """
    if not ranks:
        kept = {k for k in (*environ, *server) if k.startswith("PYTHON")} - {"PYTHONPATH"}
        return all(environ.get(k) == server.get(k) for k in kept)
    return _read_early(environ) == _read_early(server)


@contextlib.contextmanager
def _no_signals() -> Iterator[None]:
    """Block signals, because the server waits for the rest of a request; starting a process is also not interrupted."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


class Forked:
    """A process that the server has forked. Of a launcher, ``ranks`` says whether its ranks are forked as well."""

    def __init__(
        self, words: Sequence[str], *, server: str, env: Mapping[str, str], cwd: str | Path | None = None,
        stdout: Any = None, stderr: Any = None, start_new_session: bool = False, ranks: bool = True,
    ) -> None:  # fmt: skip
        self.args = words
        self.returncode: int | None = None
        self.stdout, out = self._stream(stdout, 1)
        self.stderr, err = self._stream(stderr, 2)
        asked = {
            "words": [*words[1:]], "env": dict(env), "cwd": str(cwd or Path.cwd()), "session": start_new_session,
            "ranks": ranks,
        }  # fmt: skip
        data = json.dumps(asked).encode()
        self._answers = socket.socket(socket.AF_UNIX)
        self._lines = self._answers.makefile("rb", buffering=0)
        with _no_signals(), open(os.devnull) as nothing:  # noqa: PTH123 - its descriptor is what is wanted
            self._answers.connect(server)
            socket.send_fds(self._answers, [len(data).to_bytes(8, "big")], [nothing.fileno(), out, err])
            self._answers.sendall(data)
            self.pid = int(self._lines.readline())
        for ours, stream in ((out, stdout), (err, stderr)):
            if stream == subprocess.PIPE:
                os.close(ours)

    @staticmethod
    def _stream(asked: Any, standard: int) -> tuple[io.TextIOWrapper | None, int]:
        if asked == subprocess.PIPE:
            reads, writes = os.pipe()
            return os.fdopen(reads, encoding="utf-8"), writes
        return None, standard if asked is None else asked.fileno()

    def poll(self) -> int | None:
        """Return the exit code of the process; None while it runs."""
        if self.returncode is None and select.select([self._answers], [], [], 0)[0]:
            self._take()
        return self.returncode

    def _take(self) -> None:
        said = self._lines.readline()
        self.returncode = int(said) if said else -signal.SIGKILL  # the server itself has ended
        self._lines.close()
        self._answers.close()

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the end of the process."""
        if self.returncode is None:
            if not select.select([self._answers], [], [], timeout)[0]:
                assert timeout is not None
                raise subprocess.TimeoutExpired(list(self.args), timeout)
            self._take()
        assert self.returncode is not None
        return self.returncode

    def communicate(self, timeout: float | None = None) -> tuple[str, str]:
        """Read both streams to their ends, then wait for the process."""
        texts = {"stdout": "", "stderr": ""}

        def read(name: str, stream: io.TextIOWrapper) -> None:
            with contextlib.suppress(ValueError):  # closed by a test that has ended
                texts[name] = stream.read()

        streams = {"stdout": self.stdout, "stderr": self.stderr}
        readers = [
            threading.Thread(target=read, args=(name, stream), daemon=True)
            for name, stream in streams.items()
            if stream is not None and not stream.closed
        ]
        for reader in readers:
            reader.start()
        for reader in readers:
            reader.join(timeout)
            if reader.is_alive():
                assert timeout is not None
                raise subprocess.TimeoutExpired(list(self.args), timeout)
        for stream in streams.values():
            if stream is not None:
                stream.close()
        self.wait(timeout)
        return texts["stdout"], texts["stderr"]

    def send_signal(self, number: int) -> None:
        """Send a signal to this process only, if it runs."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        """Send SIGTERM."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """Send SIGKILL."""
        self.send_signal(signal.SIGKILL)
