"""Traces of the script's own torch.profiler, as the analysis wants them: see :func:`rankscope.trace_handler`."""

from __future__ import annotations

import contextlib
import gzip
import json
import os
import shutil
import socket
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rankscope.rank_identity import identity_from

__all__ = ["writer_of"]


def writer_of(folder: str | Path) -> Callable[[Any], None]:
    """See :func:`rankscope.trace_handler`."""
    target = Path(os.fspath(folder))

    def write(profile: Any) -> None:
        try:
            _write(profile, target)
        except Exception as error:  # no error of rankscope may reach the job
            _warn(f"rankscope.trace_handler wrote no trace to {target}: {type(error).__name__}: {error}")

    return write


def _write(profile: Any, folder: Path) -> None:
    about = _about()
    rank = about.get("rank")
    # Without a rank the name has none, because the analysis guesses none either.
    who = f"rank_{rank}" if rank is not None else f"{about['host']}_{os.getpid()}"
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{who}_step_{getattr(profile, 'step_num', 0)}.pt.trace.json.gz"
    plain, packed = (folder / f".{path.name}.{os.getpid()}.{part}" for part in ("plain", "part"))
    try:
        profile.export_chrome_trace(str(plain))
        # Level 1, as PyTorch's own level 9 is eight times slower; and complete at once for whoever reads the folder.
        with plain.open("rb") as source, gzip.open(packed, "wb", compresslevel=1) as stream:
            head = source.read(1 << 12).lstrip()
            if head[:1] != b"{":
                raise OSError(f"torch.profiler wrote {head[:20]!r} and not an object")
            stream.write(f'{{"rankscope": {json.dumps(about)},'.encode() + head[1:])
            shutil.copyfileobj(source, stream, 1 << 20)
        packed.replace(path)
    finally:
        for left in (plain, packed):
            with contextlib.suppress(OSError):
                left.unlink()


def _about() -> dict[str, Any]:
    """Return host, rank and world size, as far as they are known: from the process group, else from the launcher."""
    found: dict[str, Any] = {"host": socket.gethostname()}
    dist = sys.modules.get("torch.distributed")
    if dist is not None and dist.is_available() and dist.is_initialized():
        return {**found, "rank": dist.get_rank(), "world_size": dist.get_world_size()}
    identity = identity_from(os.environ)
    if identity is not None and identity.rank >= 0:
        found["rank"] = identity.rank
        if identity.world_size is not None:
            found["world_size"] = identity.world_size
    return found


def _warn(message: str) -> None:
    try:
        warnings.warn(message, RuntimeWarning, stacklevel=3)
    except RuntimeWarning:  # warnings are errors (python -W error)
        with contextlib.suppress(Exception):
            sys.stderr.write(f"{message}\n")
