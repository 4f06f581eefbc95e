"""Store reported and true costs of planted faults in the package's model_error.json."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterable
from datetime import date
from pathlib import Path
from typing import Any

import rankscope
from rankscope.analysis.stragglers.model_error import FILE, errors_of

__all__ = ["keep"]

ABOUT = (
    "What the replay is wrong by. sources: who made cases, and by which command; cases: kind of mesh -> cause -> what "
    "was said of the cost of a fault over what was true, less 1. error: what the code reads, half a 95 % interval as a "
    "share of the cost; model_error.py says how it follows from the cases."
)


def keep(what: str, command: str, cases: Iterable[tuple[str, str, float]], file: Path = FILE) -> None:
    """Put the cases (kind of mesh, cause, said over true less 1) of one run into the file, in place of its last ones.

    Args:
        what: what the jobs were, in words.
        command: that makes them again.
        cases: of one-cause faults whose ranks were all named, and nobody else.
        file: the file of the package, or another one.
    """
    known: dict[str, Any] = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {"sources": []}
    own: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for mesh, cause, off in cases:
        own[mesh][cause].append(round(off, 3))
    source = {
        "what": what,
        "command": command,
        "rankscope": rankscope.__version__,
        "made": date.today().isoformat(),
        "cases": {
            mesh: {cause: sorted(offs) for cause, offs in sorted(of.items())} for mesh, of in sorted(own.items())
        },
    }
    sources = sorted(
        [*(s for s in known["sources"] if s["command"] != command), source], key=lambda s: (s["what"], s["command"])
    )
    every: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for each in sources:
        for mesh, of_mesh in each["cases"].items():
            for cause, offs in of_mesh.items():
                every[mesh][cause] += offs
    text = json.dumps({"about": ABOUT, "sources": sources, "error": errors_of(every)}, indent=1)
    text = re.sub(r"\[[-\d.,\s]+\]", lambda numbers: " ".join(numbers[0].split()), text)  # a list on one line
    file.write_text(text + "\n", encoding="utf-8")
