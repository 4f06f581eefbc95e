"""Answers libkineto when it asks for work: the protocol of dynolog's IPC fabric, on a socket of this run alone.

A message is a datagram: its size (uint64) and type (32 bytes), then the body. ``req`` (int32 kind, int32 n, int64 job,
n x int32 process ids, the asker's first) is answered with ``req`` and the configuration, empty for nothing to do;
``ctxt`` with a ``ctxt`` of one int32. Source: libkineto/src/IpcFabricConfigClient.cpp and dynolog's ipcfabric.

libkineto listens for 50 ms. What comes later stays in its socket and is taken for the answer to its next question, five
seconds on; so this is a process of its own at normal priority (``rankscope.node.kineto_server FOLDER FD``, until
standard input ends), and what it cannot answer in time it does not answer.
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from rankscope import own_process

__all__ = ["answer", "answering", "listen", "serve"]

_HEADER = struct.Struct("=Q32s")
_REQUEST = struct.Struct("=iiq")
_PID = struct.Struct("=i")
_ACTIVITIES = 2
"""Bit of a request's kind: this process could begin a trace now."""
_SO_TIMESTAMP = 29
"""Linux, include/uapi/asm-generic/socket.h: messages come with the time at which they were sent (a timeval)."""
_SENT = struct.Struct("=qq")
_IN_TIME_S = 0.025
"""Half of what libkineto waits."""


def answer(message: bytes, folder: Path) -> tuple[bytes, Path | None]:
    """What to reply, and the request that is thereby handed over.

    Args:
        message: a datagram of libkineto.
        folder: where ranks leave ``ask_PID``.

    Raises:
        struct.error: the message is not of this protocol.
    """
    kind = _HEADER.unpack_from(message)[1].partition(b"\0")[0]  # what follows is not initialised
    if kind != b"req":
        return _HEADER.pack(_PID.size, kind) + _PID.pack(1), None
    wants, _, _ = _REQUEST.unpack_from(message, _HEADER.size)
    (pid,) = _PID.unpack_from(message, _HEADER.size + _REQUEST.size)
    asked = folder / f"ask_{pid}"
    text = b""
    if wants & _ACTIVITIES:
        with contextlib.suppress(FileNotFoundError):
            text = asked.read_bytes()
    return _HEADER.pack(len(text), b"req") + text, asked if text else None


def listen(address: Path) -> socket.socket:
    """A socket there, whose messages tell when they were sent."""
    ours = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    try:
        ours.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMP, 1)
        ours.bind(os.fspath(address))
    except OSError:
        ours.close()
        raise
    return ours


@contextlib.contextmanager
def answering(folder: Path, address: Path) -> Iterator[None]:
    """Answer on a new socket while the context lasts.

    Raises:
        OSError: the address is taken or too long, or no process could be started.
    """
    with listen(address) as ours:
        process = subprocess.Popen(
            own_process.command(__name__, os.fspath(folder), str(ours.fileno())),
            stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, pass_fds=[ours.fileno()], env=own_process.environment(),
        )  # fmt: skip
    with process:  # leaving closes its standard input, and waits
        yield


def serve(ours: socket.socket, folder: Path, until: IO[str]) -> None:
    """Answer what comes in until something, or the end, can be read from ``until``."""
    while True:
        ready, _, _ = select.select([ours.fileno(), until.fileno()], [], [])
        if until.fileno() in ready:
            return
        message, extra, _, sender = ours.recvmsg(1 << 16, socket.CMSG_SPACE(_SENT.size))
        with contextlib.suppress(struct.error, OSError):  # a stranger, or an asker that is gone
            reply, asked = answer(message, folder)
            if _age_s(extra) > _IN_TIME_S:
                continue
            ours.sendto(reply, sender)
            if asked is not None:
                asked.unlink()  # this tells the rank that libkineto has it


def _age_s(extra: list[tuple[int, int, bytes]]) -> float:
    """How long ago a message was sent; 0 where the system does not tell."""
    for _, kind, data in extra:
        if kind == _SO_TIMESTAMP:
            seconds, microseconds = _SENT.unpack(data)
            return float(time.time() - seconds - microseconds / 1e6)
    return 0.0


if __name__ == "__main__":
    serve(socket.socket(fileno=int(sys.argv[2])), Path(sys.argv[1]), sys.stdin)
