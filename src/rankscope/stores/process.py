"""The process that speaks with a store for a node helper: ``rankscope.stores.process FOLDER URL``.

A process of its own, since the libraries of stores are large and may hang; the helper ends it then, and starts another.
It reads a question a line, and answers each with a line; see :func:`answered`.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
from pathlib import Path
from typing import Any

from rankscope.stores.mirror import Mirror

__all__ = ["answered", "main"]


def main(folder: str, url: str) -> None:
    """Answer until there is no question any more."""
    with contextlib.suppress(OSError):
        os.nice(19)
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what libraries print is no answer
    mirror: Mirror | None = None
    for line in sys.stdin:
        try:
            mirror = mirror or Mirror(Path(folder), url)
            said = {"done": answered(mirror, json.loads(line))}
        except Exception as error:  # stores raise errors of their own
            mirror = None  # its connections may be gone
            said = {"error": " ".join(f"{type(error).__name__}: {error}".split())}
        answers.write(json.dumps(said) + "\n")
        answers.flush()


def answered(mirror: Mirror, question: dict[str, Any]) -> Any:
    """``push``: number of files. ``pull`` with ``wanted``: likewise. ``claim`` with ``name``: whether it is ours."""
    if question["do"] == "push":
        return mirror.push()
    if question["do"] == "claim":
        return mirror.claim(question["name"])
    return mirror.pull(question["wanted"])


if __name__ == "__main__":
    main(*sys.argv[1:])
