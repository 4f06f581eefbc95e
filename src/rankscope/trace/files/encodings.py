"""Recognise files that would be traces if they were unpacked or converted first, by their first bytes."""

from __future__ import annotations

__all__ = ["how_archived", "how_encoded"]

_COMPRESSED = (
    (b"\x28\xb5\x2f\xfd", "Zstandard", "zstd -d"),
    (b"\xfd7zXZ\x00", "xz", "xz -d"),
    (b"BZh", "bzip2", "bzip2 -d"),
    (b"\x04\x22\x4d\x18", "LZ4", "lz4 -d"),
)
_ARCHIVES = ((b"PK\x03\x04", "a zip archive"), (b"7z\xbc\xaf\x27\x1c", "a 7z archive"))
_TAR_PLACE = 257
"""Offset of the sign of a tar archive."""
_UTF16 = (b"\xff\xfe", b"\xfe\xff")
"""Byte order marks, as a redirection in PowerShell writes them."""


def how_encoded(head: bytes) -> str | None:
    """Return why one file cannot be read as it is, and what to do; None if it is neither packed nor UTF-16."""
    for sign, name, command in _COMPRESSED:
        if head.startswith(sign):
            return f"packed with {name}, which is not read; unpack it ({command}), or pack it with gzip"
    if head.startswith(_UTF16):
        return "text in UTF-16, which no JSON may be; convert it (iconv -f UTF-16 -t UTF-8)"
    return None


def how_archived(head: bytes) -> str | None:
    """Return that this is an archive of several files, which has to be unpacked; None if it is none."""
    name = next((name for sign, name in _ARCHIVES if head.startswith(sign)), None)
    if name is None and head[_TAR_PLACE : _TAR_PLACE + 5] == b"ustar":
        name = "a tar archive"
    return None if name is None else f"{name}, which is not searched for traces; unpack it into a folder"
