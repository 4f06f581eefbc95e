"""Send a node's part to the machine that collects."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from pathlib import Path

from rankscope.collecting.parts import Part, part_of
from rankscope.collecting.wire import VERSION, nonce, proof, proves, receive, send
from rankscope.errors import RunDirError

__all__ = ["send_part"]

_BLOCK = 1 << 20
_PAUSE_S = 1.0
_ANSWERS_S = 60.0
"""Time limit for an answer of the receiver, seconds; it first reads the files that it has already."""


def send_part(
    path: Path,
    to: tuple[str, int],
    key: bytes,
    *,
    wait_s: float = 600.0,
    sent: Callable[[int, int], None] = lambda *_: None,
) -> int:
    """Send a part. If a connection cannot be made, or breaks, it is tried again; files that arrived are not sent twice.

    Args:
        path: this node's run directory.
        to: host and port.
        key: the shared key of sender and receiver.
        wait_s: time in seconds without progress after which sending is given up.
        sent: called with the number of bytes sent and the total.

    Returns:
        Number of files that the receiver did not have.

    Raises:
        RunDirError: the receiver refuses, or does not answer in time.
    """
    part = part_of(path)
    deadline = time.monotonic() + wait_s

    def moving(done: int, total: int) -> None:
        nonlocal deadline
        deadline = time.monotonic() + wait_s
        sent(done, total)

    while isinstance(outcome := _once(path, part, to, key, wait_s, moving), OSError):
        if time.monotonic() >= deadline:
            raise RunDirError(
                f"{to[0]}:{to[1]} does not take the part of {', '.join(part.nodes)} ({outcome}); "
                "does `rankscope collect --listen` run there, and may this node reach that port?"
            ) from outcome
        time.sleep(_PAUSE_S)
    return outcome


def _once(
    path: Path, part: Part, to: tuple[str, int], key: bytes, wait_s: float, sent: Callable[[int, int], None]
) -> int | OSError:
    try:
        with socket.create_connection(to, timeout=min(_ANSWERS_S, wait_s) or None) as connection:
            connection.settimeout(max(_ANSWERS_S, wait_s))
            return _speak(connection, path, part, key, sent)
    except OSError as error:
        return error


def _speak(connection: socket.socket, path: Path, part: Part, key: bytes, sent: Callable[[int, int], None]) -> int:
    hello = receive(connection)
    if hello.get("rankscope") != VERSION:
        raise RunDirError("the other end is of another version of rankscope; use the same one on all nodes")
    their_nonce, own_nonce = str(hello.get("nonce")), nonce()
    files = {name: [known.bytes, known.sha256] for name, known in part.files.items()}
    messages = [their_nonce, own_nonce, part.nodes, files]
    send(connection, nonce=own_nonce, nodes=part.nodes, files=files, proof=proof(key, "sender", *messages))
    answer = receive(connection)
    lacks: list[str] = answer.get("lacks") or []
    if not proves(answer.get("proof"), key, "receiver", *messages, lacks) or not set(lacks) <= set(files):
        raise RunDirError("the machine that collects does not know the key; nothing was sent to it")
    total, done = sum(part.files[name].bytes for name in lacks), 0
    for name in lacks:
        left = part.files[name].bytes
        with (path / name).open("rb") as stream:
            while left and (block := stream.read(min(left, _BLOCK))):
                connection.sendall(block)
                left -= len(block)
                done += len(block)
                sent(done, total)
        if left:
            raise RunDirError(f"{path / name} has become shorter while it was sent; is its job still at work?")
    end = receive(connection)
    if not proves(end.get("proof"), key, "done", *messages, end.get("done")):
        raise RunDirError("the machine that collects does not prove that it has everything; ask there")
    return len(lacks)
