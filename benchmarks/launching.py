"""Start a job on all ranks of this machine, and ensure that it ends."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence

TORCHRUN = ("torch.distributed.run",)
RANKSCOPE = ("rankscope", "run")


def launch(
    launcher: Sequence[str],
    words: Sequence[str],
    *,
    ranks: int,
    seconds: float,
    cpu: bool = False,
    cores: Sequence[int] = (),
) -> tuple[int, str]:
    """Run ``python -m launcher words`` on ``ranks`` processes, on a free port, for ``seconds`` at most, on these cores.

    Returns:
        Exit code (124 when the time was over) and what was printed.
    """
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    where = ("--nproc-per-node", str(ranks), "--master-addr", "127.0.0.1", "--master-port", port)
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "KINETO_LOG_LEVEL": "6"}
    if cpu:
        environment["CUDA_VISIBLE_DEVICES"] = ""
    pinned = ("taskset", "-c", ",".join(map(str, cores))) if cores and shutil.which("taskset") else ()
    process = subprocess.Popen(
        [*pinned, sys.executable, "-m", *launcher, *where, *words],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        output, _ = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGTERM)  # the launcher ends its ranks
        try:
            output, _ = process.communicate(timeout=15)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            output, _ = process.communicate()
        return 124, f"{output}\nended after {seconds:.0f} s"
    return process.returncode, output
