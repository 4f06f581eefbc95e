"""Tokens that replace words: equal for equal originals, and without a way to compute the original.

A token is a keyed digest (HMAC-SHA256). Without the key, a guessed name cannot be tested against a token; with the list
that the owner keeps, every token can be reversed.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import re
import secrets
from dataclasses import dataclass, field
from pathlib import Path

from rankscope.errors import ConfigError, ForeignFileError
from rankscope.rundir.foreign import read_foreign

__all__ = ["Tokens", "load_key", "reveal", "save_key"]

_DIGITS = 12
"""Hexadecimal digits of a token: among ten thousand names two collide once in five million runs. No letter is beyond f,
so that tokens contain no word by which a kind of work is recognised."""
_MOST_KEY_BYTES = 1 << 30
_SCHEMA = 1
_TOKEN = re.compile(r"(?:own|host|group|device|run|thread|path|stack|comm)_[0-9a-f]{12}|s[0-9a-f]{20}x[0-9a-f]{8}")


@dataclass(slots=True)
class Tokens:
    """Makes tokens, and stores their originals."""

    secret: bytes
    made: dict[str, str] = field(default_factory=dict)
    """Token -> original."""

    def digest(self, kind: str, text: str) -> bytes:
        """Return 32 bytes that depend on the key, the kind and the text."""
        return hmac.digest(self.secret, f"{kind}\0{text}".encode("utf-8", "surrogatepass"), "sha256")

    def token(self, kind: str, text: str) -> str:
        """Return a word for a text: ``own_3f9a...``."""
        word = f"{kind}_{self.digest(kind, text).hex()[:_DIGITS]}"
        if self.made.setdefault(word, text) != text:
            raise ConfigError("two names have one token; run it again without --key, which makes a new one")
        return word

    def number(self, kind: str, text: str, below: int) -> int:
        """Return a number for a text, from 0; its original is not stored."""
        return int.from_bytes(self.digest(kind, text)[:8], "big") % below

    def ordered(self, size: int) -> int:
        """Return a number below 2**80 that increases with ``size`` (0 to 2**63-1), and shows nothing else of it.

        The range of sizes is halved repeatedly, and each half gets a part of the numbers that is drawn from the key.
        """
        low, high, first, last = 0, 1 << 63, 0, 1 << 80
        while high - low > 1:
            middle, half = (low + high) // 2, (high - low) // 2
            room = last - first - 2 * half  # each half needs a number for each of its sizes
            drawn = int.from_bytes(self.digest("order", f"{low} {high}")[:16], "big")
            cut = first + half + (drawn * (room + 1) >> 128)
            if size < middle:
                high, last = middle, cut
            else:
                low, first = middle, cut
        return first

    def shape(self, dims: list[int]) -> str:
        """Return a word for a shape: words sort by the number of elements, and equal words are equal shapes."""
        elements = 1
        for dim in dims:
            elements *= max(dim, 0)
        text = "x".join(map(str, dims))
        place = self.ordered(min(elements, (1 << 63) - 1))
        word = f"s{place:020x}x{self.digest('shape', text).hex()[:8]}"
        self.made[word] = text
        return word

    def add(self, made: dict[str, str]) -> None:
        """Add tokens that another process has made with the same key.

        Raises:
            ConfigError: one token has two originals.
        """
        for word, text in made.items():
            if self.made.setdefault(word, text) != text:
                raise ConfigError("two names have one token; run it again without --key, which makes a new one")


def new_tokens() -> Tokens:
    """Return tokens with a new random key."""
    return Tokens(secrets.token_bytes(32))


def load_key(path: Path) -> Tokens:
    """Load the key and the list of an earlier copy, so that equal names get equal tokens.

    Raises:
        ConfigError: the file was not written by :func:`save_key`.
    """
    try:
        content = json.loads(read_foreign(path, _MOST_KEY_BYTES))
        made = content["tokens"]
        if not all(isinstance(w, str) and isinstance(t, str) for w, t in made.items()):
            raise ValueError("its list holds something else than words")
        secret = bytes.fromhex(content["secret"])
        if len(secret) != hashlib.sha256().digest_size:
            raise ValueError("the key has another length")
        return Tokens(secret, dict(made))
    except (ForeignFileError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ConfigError(f"{path} holds no key of `rankscope redact`: {error}") from error


def save_key(path: Path, tokens: Tokens) -> None:
    """Write key and list for the owner of the run, in a file that only the owner can read.

    Raises:
        OSError: it cannot be written.
    """
    text = json.dumps(
        {
            "about": "Turns the tokens of a redacted copy back: keep it, and never pass it on with the copy.",
            "schema": _SCHEMA,
            "secret": tokens.secret.hex(),
            "tokens": dict(sorted(tokens.made.items())),
        },
        indent=1,
    )
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with os.fdopen(handle, "w", encoding="utf-8", errors="surrogatepass") as stream:
            stream.write(text)
            stream.flush()
            os.fsync(stream.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def reveal(text: str, tokens: Tokens) -> str:
    """Replace every known token of a text by its original."""
    return _TOKEN.sub(lambda found: tokens.made.get(found[0], found[0]), text)
