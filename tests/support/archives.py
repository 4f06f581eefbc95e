"""Recorded data that is stored in archives."""

from __future__ import annotations

import tarfile
from pathlib import Path


def unpack(archive: Path, folder: Path) -> Path:
    """Unpack into ``folder`` and return it. Python before 3.10.12 and 3.11.4 has no filter; it is not needed here."""
    with tarfile.open(archive) as packed:
        packed.extraction_filter = getattr(tarfile, "data_filter", None)
        packed.extractall(folder)
    return folder
