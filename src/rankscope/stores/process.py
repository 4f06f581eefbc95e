"""The process that accesses a store for a node helper: ``rankscope.stores.process FOLDER URL``.

It is a separate process because the libraries of stores are large and may hang; the helper then kills it and starts
another. It reads one request per line and answers each with one line, both JSON; see :func:`answered`. Other lines,
before an answer, show that a large file moves.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

from rankscope import own_process
from rankscope.stores.mirror import Mirror

__all__ = ["answered", "main"]

_TELLS_S = 1.0
"""How often it shows that files move, seconds."""


def main(folder: str, url: str) -> None:
    """Answer requests until standard input ends."""
    own_process.give_way()
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # keeps what libraries print out of the answers
    told = 0.0

    def moved() -> None:
        nonlocal told
        if time.monotonic() > told + _TELLS_S:
            told = time.monotonic()
            answers.write('{"moved": true}\n')
            answers.flush()

    mirror: Mirror | None = None
    for line in sys.stdin:
        try:
            mirror = mirror or Mirror(Path(folder), url, moved)
            answer = {"done": answered(mirror, json.loads(line))}
        except Exception as error:  # stores raise errors of their own
            mirror = None  # its connections may be broken
            answer = {"error": " ".join(f"{type(error).__name__}: {error}".split())}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


def answered(mirror: Mirror, question: dict[str, Any]) -> Any:
    """Execute one request.

    ``push`` and ``pull`` (with ``wanted``) return the number of files, ``claim`` (with ``name``) whether it succeeded,
    ``names`` (with ``wanted``) the names in the store.
    """
    if question["do"] == "push":
        return mirror.push()
    if question["do"] == "claim":
        return mirror.claim(question["name"])
    if question["do"] == "names":
        return mirror.names(question["wanted"])
    return mirror.pull(question["wanted"])


if __name__ == "__main__":
    main(*sys.argv[1:])
