"""Protocol by which a part is sent over the network.

Both ends prove that they know the same key by a message authentication code over all messages so far. It protects the
SHA-256 of all files, against which the received files are checked. Nothing is encrypted.

    receiver   {"rankscope": 1, "nonce": ...}
    sender     {"nonce": ..., "nodes": [...], "files": {path: [bytes, sha256]}, "proof": ...}
    receiver   {"lacks": [path, ...], "proof": ...}
    sender     these files, one after the other, without separators
    receiver   {"done": number of files, "proof": ...}

Instead of any answer the receiver may send {"error": ...}.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import secrets
import socket
import struct
from typing import Any

from rankscope.errors import ConfigError, RunDirError

__all__ = ["KEY", "VERSION", "address_in", "key_from", "nonce", "proof", "proves", "receive", "send"]

KEY = "RANKSCOPE_COLLECT_KEY"
"""Environment variable with the key, because every user of a machine can read the arguments of a process."""
VERSION = 1
_MOST_BYTES = 64 << 20
"""Largest message, bytes. The longest one lists the files of a part, about 150 bytes each."""
_LENGTH = struct.Struct(">I")
_LEAST_KEY = 16


def key_from(environment: dict[str, str]) -> bytes | None:
    """Return the key from the environment; None if there is none.

    Raises:
        ConfigError: the key is too short to be safe.
    """
    key = environment.get(KEY, "")
    if key and len(key) < _LEAST_KEY:
        raise ConfigError(
            f"{KEY} has {len(key)} characters; give it {_LEAST_KEY} or more, as of `openssl rand -hex 16`"
        )
    return key.encode() or None


def address_in(text: str) -> tuple[str, int]:
    """Parse ``HOST:PORT`` or ``PORT`` (empty host); an IPv6 address is in brackets.

    Raises:
        ConfigError: the text has another form.
    """
    host, _, port = text.rpartition(":")
    if not port.isdecimal() or not 0 <= int(port) < 1 << 16:
        raise ConfigError(f"{text} is no HOST:PORT; write for instance node-0:29511")
    return host.removeprefix("[").removesuffix("]"), int(port)


def nonce() -> str:
    """Return a random value that is never used twice."""
    return secrets.token_hex(16)


def proof(key: bytes, who: str, *messages: Any) -> str:
    """Return the authentication code of the messages so far, which requires the key.

    Args:
        key: the shared key.
        who: which end sends it.
        *messages: all messages so far.
    """
    return hmac.new(key, json.dumps([who, *messages], sort_keys=True).encode(), hashlib.sha256).hexdigest()


def proves(given: object, key: bytes, who: str, *messages: Any) -> bool:
    """Return whether an authentication code is valid, see :func:`proof`."""
    return isinstance(given, str) and hmac.compare_digest(given.encode(), proof(key, who, *messages).encode())


def send(connection: socket.socket, **message: Any) -> None:
    """Send a message."""
    data = json.dumps(message).encode()
    connection.sendall(_LENGTH.pack(len(data)) + data)


def receive(connection: socket.socket) -> dict[str, Any]:
    """Return the next message.

    Raises:
        RunDirError: the other end refuses, or sends an invalid message.
        OSError: the connection is broken.
    """
    (length,) = _LENGTH.unpack(_exactly(connection, _LENGTH.size))
    if length > _MOST_BYTES:
        raise RunDirError("the other end does not speak `rankscope collect`; check host and port")
    try:
        message = json.loads(_exactly(connection, length))
    except (ValueError, RecursionError):
        message = None
    if not isinstance(message, dict):
        raise RunDirError("the other end does not speak `rankscope collect`; check host and port")
    if "error" in message:
        raise RunDirError(str(message["error"]))
    return message


def _exactly(connection: socket.socket, count: int) -> bytes:
    data = bytearray()
    while len(data) < count:
        part = connection.recv(min(count - len(data), 1 << 20))
        if not part:
            raise ConnectionError("the connection was closed in the middle of a message")
        data += part
    return bytes(data)
