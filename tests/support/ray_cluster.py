"""Ray on this machine alone: a head node without what tasks do not need, started for tests, which ends with them."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

from support.node import until

__all__ = ["ray_cluster"]

_ATTEMPTS = 4
_STARTS_S = 120.0
"""Of one attempt. Ray itself gives its processes 30 s, which no setting of it changes."""
_ENDS_S = 60.0
"""More than the 30 s in which it lets tasks end."""
_START = (
    "-m", "ray.scripts.scripts", "start", "--head", "--block", "--num-cpus", "2", "--port", "0",
    "--include-dashboard=false", "--no-monitor", "--include-log-monitor=false", "--disable-usage-stats", "--temp-dir",
)  # fmt: skip
"""Without these options two more processes import as much as the others, at the same time."""


@contextlib.contextmanager
def ray_cluster() -> Iterator[tuple[str, dict[str, str]] | str]:
    """Its address and the environment in which to connect to it, or why there is none here."""
    if find_spec("ray") is None:
        yield "ray is not installed"
        return
    environment = {**os.environ, "RAY_AUTH_MODE": "disabled"}
    folder = Path(tempfile.mkdtemp(prefix="ray"))  # a short one: the paths of sockets below it may have 107 characters
    process = None
    try:
        for attempt in range(_ATTEMPTS):
            own, log = folder / str(attempt), folder / f"{attempt}.log"
            with log.open("w") as stream:
                process = subprocess.Popen(
                    [sys.executable, *_START, str(own)], env=environment, stdout=stream, stderr=stream,
                    start_new_session=True,
                )  # fmt: skip
            address = own / "ray_current_cluster"
            until(lambda p=process, a=address: a.exists() or p.poll() is not None, _STARTS_S)
            if address.exists():
                yield address.read_text().strip(), environment
                return
            _end(process)
        yield f"Ray does not start here: {log.read_text()[-300:]}"
    finally:
        if process is not None:
            _end(process)
        shutil.rmtree(folder, ignore_errors=True)


def _end(process: subprocess.Popen[bytes]) -> None:
    """End the head and all that it started, also where it has ended without them."""
    process.terminate()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(_ENDS_S)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait(_ENDS_S)
