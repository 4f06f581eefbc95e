"""Run directories that are no folders: ``s3://bucket/run``, ``gs://``, ``az://``, ``sftp://``."""

from __future__ import annotations

import re
from pathlib import Path

__all__ = ["is_url", "last_name", "url_of"]

_URL = re.compile(r"[a-z][a-z0-9+.-]*://[^/]|file:///")
_AS_PATH = re.compile(r"([a-z][a-z0-9+.-]+):/+")


def is_url(text: str) -> bool:
    """Return whether this names a place in a store, and no path."""
    return _URL.match(text) is not None


def url_of(path: Path) -> str | None:
    """The URL that was taken for a path, which has one slash where a URL has two; None of a path."""
    found = _AS_PATH.match(str(path))
    if found is None or path.exists():
        return None
    return f"{found[1]}://{'/' if found[1] == 'file' else ''}{str(path)[found.end() :]}"


def last_name(url: str) -> str:
    """What stands behind the last slash."""
    return url.rstrip("/").rpartition("/")[2]
