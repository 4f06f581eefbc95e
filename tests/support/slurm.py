"""Slurm on this machine alone: a controller and a node that are started for a test, and end with it."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

from support.ending import end
from support.launching import free_port
from support.node import until

__all__ = ["slurm"]

_NEEDS = ("slurmctld", "slurmd", "srun", "sinfo")
_SETTINGS = """\
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
AuthType=auth/none
CredType=cred/none
SlurmUser=root
SlurmdUser=root
SlurmctldPort={ports[0]}
SlurmdPort={ports[1]}
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
ProctrackType=proctrack/pgid
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
MpiDefault=none
NodeName={host} NodeAddr=127.0.0.1 CPUs={cpus} State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP OverSubscribe=FORCE:16
"""


@contextlib.contextmanager
def slurm(folder: Path) -> Iterator[dict[str, str] | str]:
    """The environment in which srun finds it, or why there is none here."""
    lacking = [name for name in _NEEDS if shutil.which(name) is None]
    if lacking:
        yield f"{', '.join(lacking)} is not installed"
        return
    if os.geteuid():
        yield "only root starts slurmd"
        return
    for name in ("state", "spool"):
        (folder / name).mkdir(parents=True)
    host = socket.gethostname()
    text = _SETTINGS.format(host=host, folder=folder, ports=(free_port(), free_port()), cpus=os.cpu_count())
    (folder / "slurm.conf").write_text(text)
    environment = {**os.environ, "SLURM_CONF": str(folder / "slurm.conf")}
    daemons = []
    try:
        for name in ("slurmctld", "slurmd"):
            with (folder / f"{name}.log").open("w") as log:
                daemons.append(subprocess.Popen([name, "-D"], env=environment, stdout=log, stderr=log))

        def answers() -> bool:
            told = subprocess.run(["sinfo", "-h", "-o", "%T"], env=environment, capture_output=True, text=True)
            return told.stdout.strip() in ("idle", "mixed", "allocated") or any(d.poll() is not None for d in daemons)

        until(answers)
        if any(daemon.poll() is not None for daemon in daemons):
            said = "".join((folder / f"{name}.log").read_text()[-300:] for name in ("slurmctld", "slurmd"))
            yield f"Slurm does not start here: {said}"
            return
        yield environment
    finally:
        for daemon in reversed(daemons):
            end(daemon)
