"""Encrypted files, in the format of age, by the library ``pyrage``, which is imported when it is needed.

An encrypted ("sealed") file has the suffix ``.age``. The files of a run are encrypted for all its recipients. The
process that writes them holds none of their private keys, and cannot decrypt what it wrote.
"""

from __future__ import annotations

import io
import os
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any

from rankscope.errors import ConfigError, ForeignFileError
from rankscope.rundir.foreign import open_foreign, read_foreign, shown

__all__ = ["SEALED", "Seal", "identities_of", "recipients_of", "sealed_name", "unseal"]

SEALED = ".age"
_MOST_KEY_BYTES = 1 << 20
_MOST_KEYS = 256
_INSTALL = "install it with: pip install 'rankscope[encrypt]'"


def sealed_name(path: Path) -> Path:
    """Return the name of a file after encryption."""
    return path.with_name(path.name + SEALED)


def recipients_of(configured: Sequence[str]) -> list[str]:
    """Return the recipients that a configuration names: ``age1...``, ``ssh-ed25519 ...``, or files of such lines.

    Raises:
        ConfigError: a recipient is not valid, a file cannot be read, or the library is missing.
    """
    found: list[str] = []
    for word in configured:
        lines = [word] if word.startswith(("age1", "ssh-")) else _lines(Path(word), "store.encrypt")
        found += [line for line in lines if line not in found]
    if configured and not found:
        raise ConfigError(
            f"store.encrypt={list(configured)} names no recipient; write one as age1... or ssh-ed25519 ..."
        )
    if len(found) > _MOST_KEYS:
        raise ConfigError(f"store.encrypt names {len(found)} recipients, the most are {_MOST_KEYS}")
    for line in found:
        _recipient(line)
    return found


def _lines(path: Path, key: str) -> list[str]:
    try:
        text = read_foreign(path, _MOST_KEY_BYTES).decode("utf-8", "replace")
    except ForeignFileError as error:
        raise ConfigError(f"{key}: {error}") from error
    return [line.strip() for line in text.splitlines() if line.strip() and not line.startswith("#")]


def _library() -> Any:
    try:
        import pyrage
    except ImportError as error:
        raise ConfigError(f"encryption needs the library pyrage ({error}); {_INSTALL}") from error
    return pyrage


def _recipient(text: str) -> Any:
    age = _library()
    try:
        return (age.ssh if text.startswith("ssh-") else age.x25519).Recipient.from_str(text)
    except Exception as error:  # the library's own kinds
        raise ConfigError(f"store.encrypt: {text:.40} is no recipient of age ({error})") from error


class Seal:
    """Encrypts for a list of recipients.

    Raises:
        ConfigError: see :func:`recipients_of`.
    """

    def __init__(self, recipients: Sequence[str]) -> None:
        self._recipients = [_recipient(text) for text in recipients]

    def stream(self, plain: IO[bytes], sealed: IO[bytes]) -> None:
        """Encrypt the rest of a stream."""
        _library().encrypt_io(plain, sealed, self._recipients)

    def data(self, plain: bytes) -> bytes:
        """Encrypt bytes in memory."""
        sealed = io.BytesIO()
        self.stream(io.BytesIO(plain), sealed)
        return sealed.getvalue()


def identities_of(path: Path) -> list[Any]:
    """Read private keys from a file of age (``AGE-SECRET-KEY-...``) or of SSH.

    Raises:
        ConfigError: the file contains no key, or the library is missing.
    """
    age = _library()
    try:
        text = read_foreign(path, _MOST_KEY_BYTES)
        if b"PRIVATE KEY" in text:
            return [age.ssh.Identity.from_buffer(text)]
        lines = [line.strip() for line in text.decode("utf-8", "replace").splitlines()]
        return [age.x25519.Identity.from_str(line) for line in lines if line.startswith("AGE-SECRET-KEY-")] or _none()
    except ForeignFileError as error:
        raise ConfigError(f"--identity {error}") from error
    except Exception as error:  # the library's own kinds
        raise ConfigError(f"--identity {path} holds no key of age ({error})") from error


def _none() -> Any:
    raise ValueError("no line of it begins with AGE-SECRET-KEY-")


def unseal(source: Path, target: Path, identities: list[Any], limit: int) -> None:
    """Decrypt a file into a new file that only this user may read.

    Args:
        source: the encrypted file.
        target: the new file.
        identities: the result of :func:`identities_of`.
        limit: largest size of the encrypted file, bytes.

    Raises:
        ForeignFileError: the file was encrypted for other recipients, or is damaged.
        OSError: ``target`` cannot be written.
    """
    handle = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(handle, "wb") as plain, open_foreign(source, limit) as sealed:
        try:
            _library().decrypt_io(sealed, plain, identities)
        except (OSError, ConfigError):
            raise
        except Exception as error:  # the library's own kinds
            raise ForeignFileError(f"{shown(source)} cannot be opened with this key ({error})") from error
