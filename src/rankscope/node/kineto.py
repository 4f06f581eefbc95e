"""Answers libkineto when it asks for work: the protocol of dynolog's IPC fabric, on a socket of this run alone.

A message is a datagram: its size (uint64) and type (32 bytes), then the body. ``req`` (int32 kind, int32 n, int64 job,
n x int32 process ids, the asker's first) is answered with ``req`` and the configuration, empty for nothing to do;
``ctxt`` with a ``ctxt`` of one int32. Source: libkineto/src/IpcFabricConfigClient.cpp and dynolog's ipcfabric.
"""

from __future__ import annotations

import contextlib
import os
import socket
import struct
import threading
from pathlib import Path

__all__ = ["KinetoAnswers", "answer"]

_HEADER = struct.Struct("=Q32s")
_REQUEST = struct.Struct("=iiq")
_PID = struct.Struct("=i")
_ACTIVITIES = 2
"""Bit of a request's kind: this process could begin a trace now."""


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


class KinetoAnswers:
    """A thread that answers: libkineto waits 50 ms for a reply, and gathering takes longer."""

    def __init__(self, folder: Path, address: Path) -> None:
        self._folder = folder
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(os.fspath(address))
        threading.Thread(target=self._serve, name="kineto-answers", daemon=True).start()

    def _serve(self) -> None:
        while True:
            message, sender = self._socket.recvfrom(1 << 16)
            with contextlib.suppress(struct.error, OSError):  # a stranger, or an asker that is gone
                reply, asked = answer(message, self._folder)
                self._socket.sendto(reply, sender)
                if asked is not None:
                    asked.unlink()  # this tells the rank that libkineto has it
