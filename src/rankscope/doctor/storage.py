"""Checks of the shared folder, the clocks of the hosts, this node's own disk, limits, and encryption."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import shutil
import socket
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from rankscope.doctor.base import CheckInput, CheckResult
from rankscope.errors import ConfigError
from rankscope.node.gathering.signing import load_signing_key
from rankscope.rundir.sealing import recipients_of

__all__ = ["limits", "own_disk", "protection", "shared_folder"]

_TRIAL_BYTES = 32 << 20
_ENOUGH_BYTES = 2 << 30
"""Least free space: about a hundred traces of 20 MB. A window of 8 ranks writes 8 of them before they are moved."""
_SLOW_MB_S = 20.0
"""Least write speed: a window of 8 ranks has about 160 MB compressed, which must not take longer than 8 s."""
_MOST_APART_S = 0.5
"""Largest difference of clocks that is not reported. Traces are aligned by their collectives, not by these clocks."""
_HOSTS_WITHIN_S = 60.0


def shared_folder(question: CheckInput) -> Iterator[CheckResult]:
    """Check the folder of the runs: writable, free space, speed, visible on all hosts; and the clocks of the hosts."""
    folder = question.run_dir
    if not os.access(folder, os.W_OK):
        yield CheckResult("bad", f"{folder} cannot be written", "name another with -S run.dir=DIR")
        return
    free = shutil.disk_usage(folder).free
    kind = _file_system(folder)
    full = free < _ENOUGH_BYTES
    yield CheckResult(
        "bad" if full else "ok", f"{folder} ({kind}): {free / 1e9:.1f} GB free", "make room" if full else ""
    )
    try:
        speed = _speed(folder)
    except OSError as error:
        yield CheckResult("bad", f"{folder} takes no file of {_TRIAL_BYTES >> 20} MB: {error.strerror}", "make room")
        return
    slow = "the job does not wait for it, the report does; name a faster folder" if speed < _SLOW_MB_S else ""
    yield CheckResult("note" if slow else "ok", f"{folder} takes {speed:.0f} MB/s", slow)
    yield from _hosts(folder, question.hosts)


def _hosts(folder: Path, hosts: int) -> Iterator[CheckResult]:
    """Check that all hosts see the folder and have the same time.

    Each host writes a file that contains the time of its clock; the modification time is of the file server's clock.
    """
    place = folder / ".rankscope_doctor"
    place.mkdir(exist_ok=True)
    own = place / f"{socket.gethostname()}.json"
    own.write_text(json.dumps({"time": time.time()}), encoding="utf-8")
    try:
        deadline = time.monotonic() + (_HOSTS_WITHIN_S if hosts > 1 else 0.0)
        while len(seen := _seen(place)) < hosts and time.monotonic() < deadline:
            time.sleep(0.2)
        if hosts > 1:
            missing = hosts - len(seen)
            text = f"{folder} is seen by {len(seen)} of {hosts} hosts: {', '.join(sorted(seen))}"
            yield CheckResult("bad" if missing else "ok", text, "use a folder that all nodes mount" if missing else "")
        apart = max(seen.values()) - min(seen.values()) if len(seen) > 1 else abs(next(iter(seen.values()), 0.0))
        between = "clocks of the hosts" if len(seen) > 1 else "this clock and that of the store"
        text = f"{between} are {apart * 1e3:.0f} ms apart, as files tell"
        bad = apart > _MOST_APART_S
        yield CheckResult("note" if bad else "ok", text, "chronyd or ntpd on every node" if bad else "")
    finally:
        with contextlib.suppress(OSError):
            if hosts <= 1:
                own.unlink()
                place.rmdir()


def _seen(place: Path) -> dict[str, float]:
    """Return host -> its clock minus the clock of the file server, seconds."""
    found = {}
    for path in place.glob("*.json"):
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            found[path.stem] = float(json.loads(path.read_text(encoding="utf-8"))["time"]) - path.stat().st_mtime
    return found


def _speed(folder: Path) -> float:
    """Return the speed of writing and flushing one file, MB/s."""
    data = os.urandom(1 << 20)
    with tempfile.NamedTemporaryFile(dir=folder, prefix=".rankscope_doctor_") as trial:
        begun = time.monotonic()
        for _ in range(_TRIAL_BYTES >> 20):
            trial.write(data)
        trial.flush()
        os.fsync(trial.fileno())
        return _TRIAL_BYTES / 1e6 / max(time.monotonic() - begun, 1e-6)


def _file_system(folder: Path) -> str:
    best = ("", "unknown")
    with contextlib.suppress(OSError):
        for line in Path("/proc/mounts").read_text(encoding="utf-8", errors="replace").splitlines():
            _, mount, kind, *_ = line.split()
            if folder.resolve().is_relative_to(mount) and len(mount) >= len(best[0]):
                best = mount, kind
    return best[1]


def protection(question: CheckInput) -> Iterator[CheckResult]:
    """Check the configured recipients and the signing key."""
    store = question.config.store
    try:
        recipients = recipients_of(list(store.encrypt))
        if recipients:
            yield CheckResult("ok", f"runs are encrypted for {len(recipients)} recipient(s)")
        if store.signing_key is not None:
            load_signing_key(Path(store.signing_key).expanduser())
            yield CheckResult("ok", f"runs are signed with {store.signing_key}")
    except ConfigError as error:
        yield CheckResult("bad", str(error), "mend it, or leave it out: with it no job is started under rankscope")


def own_disk(_question: CheckInput) -> Iterator[CheckResult]:
    """Check the disk of the temporary folder, where ranks write their traces first."""
    folder = Path(tempfile.gettempdir())
    free = shutil.disk_usage(folder).free
    bad = free < _ENOUGH_BYTES
    remedy = "make room, or set TMPDIR to a disk of this node with more" if bad else ""
    yield CheckResult("bad" if bad else "ok", f"{folder} ({_file_system(folder)}): {free / 1e9:.1f} GB free", remedy)


def limits(_question: CheckInput) -> Iterator[CheckResult]:
    """Check the limits of open files and processes."""
    for name, kind, least in (("open files", resource.RLIMIT_NOFILE, 1024), ("processes", resource.RLIMIT_NPROC, 4096)):
        soft, hard = resource.getrlimit(kind)
        low = soft != resource.RLIM_INFINITY and soft < least
        flag = {"open files": "-n", "processes": "-u"}[name]
        text = f"limit of {name}: {'none' if soft == resource.RLIM_INFINITY else soft}"
        remedy = f"ulimit {flag} {least if hard == resource.RLIM_INFINITY else min(least, hard)}" if low else ""
        yield CheckResult("note" if low else "ok", text, remedy)
