"""Runs as a node helper finishes them, signed or encrypted."""

from __future__ import annotations

import contextlib
import gzip
from pathlib import Path

import pytest

from rankscope.rundir.layout import RunDir
from support.node import Node

DATA = Path(__file__).parents[1] / "data"
SECRET = "Zquonk-of-the-command-line"
TRACE = "attempt_0/window_000/rank_00000.trace.json.gz"
OTHER = "attempt_0/window_000/rank_00001.trace.json.gz"


def trace_of(rank: int) -> str:
    """Return the trace of a rank of a recorded job in which rank 1 waits for its input."""
    return gzip.decompress((DATA / f"traces/gloo_ddp_input/rank_{rank}.json.gz").read_bytes()).decode()


def keys(folder: Path, name: str) -> tuple[Path, Path]:
    """Write a private and a public Ed25519 key; return the files."""
    ed25519 = pytest.importorskip("cryptography.hazmat.primitives.asymmetric.ed25519")
    serialization = pytest.importorskip("cryptography.hazmat.primitives.serialization")
    key = ed25519.Ed25519PrivateKey.generate()
    private, public = folder / name, folder / f"{name}.pub"
    private.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    public.write_bytes(
        key.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    )
    return private, public


def leave(folder: Path, **task: object) -> Path:
    """Make a run of two ranks and a window, finished by a helper."""
    run = RunDir(folder / "run")
    node = Node(folder / "spool", run, argv=["rankscope", "run", "train.py", "--token", SECRET], **task)
    with contextlib.closing(node.start()):
        for rank in (0, 1):
            snapshot = node.spool.snapshot(0, 0, rank)
            snapshot.write_bytes(b"a pickle that nobody reads here")
            node.records(rank, trace_of(rank), snapshot=snapshot.name)
            node.lives(rank)
        node.end()
    return run.path
