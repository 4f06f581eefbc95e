"""Synchronise a folder on this node's own disk with the run directory in a store.

Every file is uploaded whole, read back, and noted in the folder. After a process was killed, the next one continues
from the notes, and uploads again what was not noted. run.json is uploaded last: readers of the store trust only that
file, which holds the SHA-256 of all others. Files are compared by SHA-256, never by name and size alone.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rankscope.errors import RunDirError
from rankscope.rundir.files import sha256_of, sha256_of_stream, temporary_beside
from rankscope.rundir.urls import has_folders
from rankscope.stores.paced import Telling, paced

__all__ = ["NOTES", "Mirror"]

NOTES = ".sent.jsonl"
"""File in the folder with one JSON line for each file that the store is known to hold: name, size, time of change, its
version in the store, and whether it was uploaded from here."""
_SUMS = ("ETag", "etag", "md5Hash")
_TIMES = ("mtime", "LastModified", "last_modified", "updated")
"""Properties by which stores identify the version of a file. Times are used only without a checksum, because the same
store may report them with different precision."""
_ORDER = (re.compile(r"nodes/.*\.result\.json"), re.compile(r"run\.json(\.age)?"), re.compile(r"run\.json\.sig"))
"""Files that are uploaded last, in this order: each one states that the files before it are complete."""
_OURS = re.compile(r"attempt_\d+/window_\d+/rank_\d+\.parquet|(?:.*/)?\.[^/]*")
"""Caches and temporary files stay on the node."""


@dataclass(frozen=True, slots=True)
class _State:
    size: int
    changed_ns: int


@dataclass(frozen=True, slots=True)
class _Known:
    """A file that the store holds."""

    state: _State
    """Size and time of change of the local file."""
    version: str
    """Version of the file in the store."""
    ours: bool
    """Whether it was uploaded from here; otherwise it was downloaded."""


class Mirror:
    """Uploads files to a store and downloads files from it.

    Args:
        folder: the folder on this node's own disk.
        url: the run directory in the store.
        moved: called when a part of a file has moved.

    Raises:
        RunDirError: fsspec cannot use the URL; the message names the missing package.
    """

    def __init__(self, folder: Path, url: str, moved: Callable[[], None] = lambda: None) -> None:
        self._folder, self.url, self._moved = folder, url.rstrip("/"), moved
        self._files, self._root = _opened(url)
        self._sent = self._notes()

    def claim(self, name: str) -> bool:
        """Upload a file that must not exist in the store. Returns whether this node owns it, now or already before."""
        own = (self._folder / name).read_bytes()
        remote = f"{self._root}/{name}"
        self._make_folder(remote)
        try:
            self._files.pipe_file(remote, own, mode="create")
        except FileExistsError:
            return bool(self._files.cat_file(remote) == own)
        except (TypeError, ValueError, NotImplementedError):  # a store without the mode "create"
            if self._files.exists(remote):
                return bool(self._files.cat_file(remote) == own)
            self._files.pipe_file(remote, own)
        return True

    def push(self) -> int:
        """Upload all files that are missing or different in the store.

        Returns:
            The number of uploaded files.

        Raises:
            OSError: a file could not be uploaded, or reads back differently. The files before it are in the store.
        """
        count, there = 0, self._versions()
        for path in sorted(self._own_files(), key=self._place_in_order):
            name = path.relative_to(self._folder).as_posix()
            state, known = _state(path), self._sent.get(name)
            if known is not None and known.state == state and (not known.ours or there.get(name) == known.version):
                continue  # unchanged here and in the store; a file that the store has lost is uploaded again
            digest = sha256_of(path)
            remote = f"{self._root}/{name}"
            if self._remote_sha256(remote, state.size) != digest:
                self._make_folder(remote)
                self._files.put_file(str(path), remote, **self._paced("put_file"))
                self._files.invalidate_cache()
                if self._remote_sha256(remote, state.size) != digest:
                    raise OSError(f"{self.url}/{name} reads otherwise than what was written")
                count += 1
            self._note(name, _Known(state, _version(self._files.info(remote)), True))
        return count

    def pull(self, wanted: str = "") -> int:
        """Download missing files, and newer versions of files that were downloaded before.

        Args:
            wanted: regular expression that names must match from their beginning.

        Returns:
            The number of downloaded files.
        """
        count = 0
        for name, version in sorted(self._versions().items()):
            if not re.match(wanted, name) or _OURS.fullmatch(name) or not _is_plain(name):
                continue
            target, known = self._folder / name, self._sent.get(name)
            if not target.exists() or (known is not None and not known.ours and known.version != version):
                self._fetch(name, target, version)
                count += 1
        return count

    def names(self, wanted: str) -> list[str]:
        """Return the names of all files in the store that match a regular expression from their beginning."""
        return [name for name in self._versions() if re.match(wanted, name)]

    def _versions(self) -> dict[str, str]:
        """Return name -> version of all files in the store. The version changes when a file is uploaded again."""
        self._files.invalidate_cache()
        try:
            found = self._files.find(self._root, detail=True)
        except FileNotFoundError:
            return {}
        return {str(path)[len(self._root) :].lstrip("/"): _version(about) for path, about in found.items()}

    def _fetch(self, name: str, target: Path, version: str) -> None:
        target.parent.mkdir(parents=True, exist_ok=True)
        with temporary_beside(target) as temporary:
            self._files.get_file(f"{self._root}/{name}", str(temporary), **self._paced("get_file"))
            temporary.replace(target)
        self._note(name, _Known(_state(target), version, False))

    def _own_files(self) -> Iterator[Path]:
        for path in self._folder.rglob("*"):
            name = path.relative_to(self._folder).as_posix()
            if path.is_file() and not path.is_symlink() and not _OURS.fullmatch(name):
                yield path

    def _place_in_order(self, path: Path) -> tuple[int, str]:
        name = path.relative_to(self._folder).as_posix()
        return next((n for n, order in enumerate(_ORDER, 1) if order.fullmatch(name)), 0), name

    def _remote_sha256(self, remote: str, size: int) -> str:
        """Return the SHA-256 of a file in the store; empty if there is none of that size."""
        try:
            if self._files.info(remote)["size"] != size:
                return ""
            with self._files.open(remote, "rb") as stream:
                return sha256_of_stream(Telling(stream, self._moved))  # type: ignore[arg-type]
        except FileNotFoundError:
            return ""

    def _paced(self, name: str) -> dict[str, Any]:
        return paced(getattr(self._files, name), getattr(self._files, f"_{name}", None), self._moved)

    def _make_folder(self, remote: str) -> None:
        if has_folders(self._files.protocol):
            self._files.makedirs(remote.rpartition("/")[0], exist_ok=True)

    def _notes(self) -> dict[str, _Known]:
        try:
            lines = (self._folder / NOTES).read_text(encoding="utf-8").splitlines()
        except FileNotFoundError:
            return {}
        known = {}
        for line in lines:
            try:
                name, size, changed, version, ours = json.loads(line)
            except ValueError:  # a process was killed while it wrote the line
                continue
            known[name] = _Known(_State(size, changed), version, ours)
        return known

    def _note(self, name: str, known: _Known) -> None:
        self._sent[name] = known
        with (self._folder / NOTES).open("a", encoding="utf-8") as stream:
            # The leading line break ends a line that a killed process left incomplete.
            state = [known.state.size, known.state.changed_ns]
            stream.write("\n" + json.dumps([name, *state, known.version, known.ours]) + "\n")


def _state(path: Path) -> _State:
    found = path.stat()
    return _State(found.st_size, found.st_mtime_ns)


def _version(about: dict[str, Any]) -> str:
    properties = [about[key] for key in _SUMS if about.get(key)] or [about[key] for key in _TIMES if about.get(key)]
    return " ".join(map(str, [about.get("size"), *properties]))


def _is_plain(name: str) -> bool:
    """Return whether a name reported by a store lies below the folder."""
    return not name.startswith("/") and ".." not in name.split("/") and "\\" not in name


def _opened(url: str) -> tuple[Any, str]:
    try:
        import fsspec
    except ImportError as error:
        raise RunDirError(f"{url} needs the package fsspec, which comes with torch; pip install fsspec") from error
    try:
        # No cached listings, which may be stale, and a new connection, because the last one may have failed.
        files, root = fsspec.core.url_to_fs(url, use_listings_cache=False, skip_instance_cache=True)
    except (ImportError, ValueError, OSError, TypeError) as error:
        raise RunDirError(f"{url} cannot be used as a store: {error}") from error
    return files, str(root).rstrip("/")
