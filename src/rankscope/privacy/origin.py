"""Origin of a file that is not the one the run had under its name: another place, window or run."""

from __future__ import annotations

import contextlib
import gzip
import itertools
import json
import re
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from rankscope.errors import ForeignFileError
from rankscope.records.manifest import RunManifest
from rankscope.records.spec import AgentSpec
from rankscope.rundir.files import sha256_of
from rankscope.rundir.foreign import open_foreign, read_foreign
from rankscope.rundir.layout import RunDir
from rankscope.rundir.record_files import read_record

__all__ = ["origin_of"]

_MOST_RECORD_BYTES = 1 << 24
_MOST_TRACE_BYTES = 1 << 36
_HEAD_BYTES = 1 << 20
"""Part of the uncompressed trace that is read: the agent's metadata precedes the events."""
_MOST_SIBLINGS = 1_000
_PLACE = re.compile(r"attempt_(?P<attempt>\d+)/(?:window_(?P<window>\d+)/)?rank_(?P<rank>\d+)\.", re.ASCII)
_OURS = re.compile(rb'"rankscope" ?: ?(?={)')


def origin_of(run_dir: RunDir, name: str, changed: Mapping[str, str], manifest: RunManifest) -> str | None:
    """Describe where the content of a file comes from; None if that is unknown.

    Args:
        run_dir: of the run.
        name: of the file, below it.
        changed: SHA-256 of each file that differs from the manifest.
        manifest: of the run.
    """
    owner = next((other for other, known in manifest.files.items() if known.sha256 == changed[name]), None)
    if owner is not None:
        how = "swapped: it holds what {} held" if owner in changed else "replayed: it holds what {} holds"
        return how.format(owner)
    stated = _said(run_dir.path / name)
    run, known = stated.get("run_id"), {manifest.run_id}
    with contextlib.suppress(ForeignFileError):
        known.add(read_record(AgentSpec, run_dir.agent_spec).run_id)
    if isinstance(run, str) and run not in known:
        return f"replayed: it is of another run ({run:.80})"
    place = _PLACE.match(name)
    wrong = [
        f"{key} {stated[key]}"
        for key, number in (place.groupdict() if place is not None else {}).items()
        if number is not None and isinstance(stated.get(key), int) and stated[key] != int(number)
    ]
    if wrong:
        return f"replayed: it says that it is of {', '.join(wrong)}"
    with contextlib.suppress(OSError):
        for other in _siblings(run_dir.path, name):
            if sha256_of(other) == changed[name]:
                return f"replayed: it holds what {other.relative_to(run_dir.path.absolute().parent)} holds"
    return None


def _said(path: Path) -> dict[str, Any]:
    """Return the identity in a record, or in the head of a trace."""
    found: Any = None
    with contextlib.suppress(ForeignFileError, OSError, EOFError, zlib.error, ValueError, RecursionError):
        if path.name.endswith(".trace.json.gz"):
            with open_foreign(path, _MOST_TRACE_BYTES) as packed, gzip.open(packed) as stream:
                head = stream.read(_HEAD_BYTES)
            if (ours := _OURS.search(head)) is not None:
                found, _ = json.JSONDecoder().raw_decode(head[ours.end() :].decode("utf-8", "replace"))
        elif path.suffix == ".json":
            found = json.loads(read_foreign(path, _MOST_RECORD_BYTES))
    return found if isinstance(found, dict) else {}


def _siblings(run: Path, name: str) -> Iterator[Path]:
    """Yield files of the same name and size in the runs beside this one."""
    size = (run / name).stat().st_size
    for other in itertools.islice(sorted(run.absolute().parent.iterdir()), _MOST_SIBLINGS):
        if other == run.absolute() or other.is_symlink() or not other.is_dir():
            continue
        for path in (other / name, *other.glob(f"attempt_*/window_*/{Path(name).name}")):
            if path.is_file() and not path.is_symlink() and path.stat().st_size == size:
                yield path
