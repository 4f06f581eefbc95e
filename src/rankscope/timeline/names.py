"""Text of traces as JSON that every viewer accepts: without control characters and lone surrogates, of limited
length."""

from __future__ import annotations

import json
from collections.abc import Sequence

__all__ = ["LONGEST", "quoted", "quoted_all"]

LONGEST = 500
"""Characters of a name; the middle of a longer one is removed."""

_CONTROL = {code: 0x2400 + code for code in range(32)} | {127: 0x2421} | dict.fromkeys(range(0x80, 0xA0), 0xFFFD)


def quoted(text: str) -> str:
    """Return a JSON string in ASCII, quotes included."""
    if len(text) > LONGEST:
        head = (LONGEST - 1) * 2 // 3
        text = f"{text[:head]}…{text[len(text) - (LONGEST - 1 - head) :]}"
    return json.dumps(text.encode("utf-8", "replace").decode("utf-8").translate(_CONTROL))


def quoted_all(texts: Sequence[str]) -> list[str]:
    """Each of the texts, quoted."""
    return [quoted(text) for text in texts]
