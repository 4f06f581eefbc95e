"""Storage of objects: a folder, or any URL that fsspec supports (``s3://bucket/run``, ``gs://``, ``az://``).

An incomplete object is invalid, because its directory is at its end. So only the object itself shows that it exists, an
interrupted upload is repeated, and a store only has to keep what it received.
"""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from rankscope.errors import RunDirError
from rankscope.rundir.files import place, temporary_folder
from rankscope.rundir.foreign import open_foreign
from rankscope.rundir.urls import has_folders
from rankscope.trace.files.objects import MOST_BYTES, SUFFIX, Contents, ObjectReader

__all__ = ["Place", "added", "is_url", "place_of", "places_in", "written"]


@dataclass(frozen=True, slots=True)
class Place:
    """The location of an object that exists or will be written."""

    name: str
    """Its path or URL."""
    open: Callable[[], BinaryIO]
    """Opens it for reading. A store raises errors of its own."""

    def contents(self) -> Contents | None:
        """Return what the object holds; None if there is no complete object that this version reads."""
        try:
            with ObjectReader.open(self.name, self.open) as reader:
                return reader.contents
        except Exception:  # stores raise errors of their own
            return None


def is_url(where: str) -> bool:
    """Return whether this is a URL and not a path."""
    return "://" in where


def place_of(where: str) -> Place:
    """Return the place of an object, by its path or URL.

    Raises:
        RunDirError: of a URL, fsspec cannot use it.
    """
    if not is_url(where):
        return Place(where, lambda: open_foreign(Path(where), MOST_BYTES))
    files, path = _opened(where)
    return Place(where, lambda: files.open(path, "rb"))


def places_in(where: str) -> list[Place]:
    """Return the objects in a folder or below a URL, sorted by name; or the object at this very path or URL.

    Raises:
        RunDirError: it cannot be read.
    """
    if where.endswith(SUFFIX):
        return [place_of(where)]
    if not is_url(where):
        return [place_of(str(path)) for path in sorted(Path(where).glob(f"*{SUFFIX}"))]
    files, path = _opened(where)
    try:
        names = sorted(str(found).rpartition("/")[2] for found in files.ls(path, detail=False))
    except Exception as error:  # stores raise errors of their own
        raise RunDirError(f"{where} cannot be read ({error}); check the address and your rights") from error
    return [place_of(f"{where.rstrip('/')}/{name}") for name in names if name.endswith(SUFFIX)]


@contextmanager
def written(where: str) -> Iterator[Path]:
    """Yield a file to write an object to, which is stored when the block ends without an error.

    Raises:
        OSError: the stored object differs from what was sent. A store that cannot be written raises errors of its own.
    """
    if not is_url(where):
        target = Path(where)
        target.parent.mkdir(parents=True, exist_ok=True)
        yield target
        return
    files, path = _opened(where)
    with temporary_folder() as folder:
        local = folder / "object"
        yield local
        if has_folders(files.protocol):
            files.makedirs(path.rpartition("/")[0], exist_ok=True)
        files.put_file(str(local), path)
        files.invalidate_cache()
        size = files.info(path)["size"]
        if size != local.stat().st_size:
            raise OSError(f"{where} holds {size} bytes of the {local.stat().st_size} that were sent")


def added(local: Path, where: str) -> str:
    """Store a finished object under a name that no object of other traces has: the given one, or that with a number.

    Args:
        local: the object; beside ``where`` if that is a path.
        where: path or URL.

    Returns:
        The path or URL at which it is.

    Raises:
        OSError: it cannot be stored. A store that cannot be written raises errors of its own.
    """
    mine = _traces(place_of(str(local)))
    for number in itertools.count(1):
        target = where if number == 1 else f"{where.removesuffix(SUFFIX)}_{number}{SUFFIX}"
        if _stored(local, target, mine):
            return target
    raise AssertionError


def _stored(local: Path, target: str, mine: list[tuple[str, tuple[int, ...]]] | None) -> bool:
    if is_url(target):
        files, path = _opened(target)
        if files.exists(path) and _traces(place_of(target)) != mine:
            return False
        with written(target) as copy:
            shutil.copyfile(local, copy)
        return True
    try:
        place(local, Path(target))
    except RunDirError:
        if _traces(place_of(target)) != mine:
            return False
        local.replace(target)
    return True


def _traces(place: Place) -> list[tuple[str, tuple[int, ...]]] | None:
    """Return path and checksums of each trace in an object; None if it cannot be read."""
    try:
        with ObjectReader.open(place.name, place.open) as reader:
            return [(file.path, reader.checksums(file)) for file in reader.contents.files]
    except Exception:  # stores raise errors of their own
        return None


def _opened(url: str) -> tuple[Any, str]:
    """Return the file system and the path in it. fsspec comes with torch; it names the packages that it needs for a
    URL."""
    import fsspec

    try:
        files, path = fsspec.core.url_to_fs(url)
    except (ImportError, ValueError, OSError) as error:
        raise RunDirError(f"{url} cannot be used as a store: {error}") from error
    return files, str(path).rstrip("/")
