"""URLs of run directories in a store: ``s3://bucket/run``, ``gs://``, ``az://``, ``sftp://``."""

from __future__ import annotations

import re
from pathlib import Path

__all__ = ["has_folders", "is_url", "last_name", "url_of"]

_URL = re.compile(r"[a-z][a-z0-9+.-]*://[^/]|file:///")
_AS_PATH = re.compile(r"([a-z][a-z0-9+.-]+):/+")


def is_url(text: str) -> bool:
    """Return whether the text is the URL of a store, not a path."""
    return _URL.match(text) is not None


def url_of(path: Path) -> str | None:
    """Return the URL from which a ``Path`` was made (``Path`` removes one of its two slashes); None for other paths."""
    match = _AS_PATH.match(str(path))
    if match is None or path.exists():
        return None
    return f"{match[1]}://{'/' if match[1] == 'file' else ''}{str(path)[match.end() :]}"


def last_name(url: str) -> str:
    """Return the part of a URL after the last slash."""
    return url.rstrip("/").rpartition("/")[2]


_BUCKETS = frozenset({"s3", "s3a", "gs", "gcs", "az", "abfs", "abfss", "oci", "oss"})


def has_folders(protocol: str | tuple[str, ...]) -> bool:
    """Return whether a file system of fsspec with this protocol needs folders to be made. Stores of objects do not, and
    would make a bucket where the name of one is mistyped."""
    return _BUCKETS.isdisjoint((protocol,) if isinstance(protocol, str) else protocol)
