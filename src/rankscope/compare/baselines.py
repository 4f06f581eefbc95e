"""Baselines: runs that others are compared with, in a folder or at any URL that fsspec supports.

``STORE/NAME/NNNN-XXXXXXXX.json.gz`` holds the summary of a run (:class:`RunSummary`), numbered in the order of
acceptance. The other part of the name is random: two jobs that add a run at the same time may choose the same number,
and no object store refuses the second one. The oldest is never removed, because it shows slow creep. Of the others the
latest are kept.
"""

from __future__ import annotations

import gzip
import json
import os
import re
import secrets
import zlib
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from rankscope.compare.comparable import other_job
from rankscope.compare.sides.side import Side, from_summaries, summary_of
from rankscope.errors import ConfigError, ForeignFileError, RunDirError
from rankscope.records.codec import from_json
from rankscope.records.run_summary import RunSummary

__all__ = ["KEPT", "PREFIX", "Store", "default_store"]

PREFIX = "baseline:"
KEPT = 30
"""Number of runs of a baseline; beyond it, the second oldest is removed."""
MOST_BYTES = 1 << 30
"""Largest size of one run, uncompressed: some 20 kB per rank and window, for tens of thousands of ranks."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_FILE = re.compile(r"(\d{4,9})(?:-[0-9a-f]{8})?\.json\.gz")


def default_store() -> str:
    """Return RANKSCOPE_BASELINES, else a folder beside the runs."""
    return os.environ.get("RANKSCOPE_BASELINES") or "rankscope_baselines"


@dataclass(frozen=True, slots=True)
class Store:
    """The location of baselines.

    Raises:
        RunDirError: it cannot be used.
    """

    url: str

    def names(self) -> list[str]:
        """Return the names of all baselines."""
        files, root = self._open()
        try:
            if files.isfile(root):
                raise RunDirError(f"{self.url} is a file; name a folder of baselines")
            found = files.ls(root, detail=False) if files.exists(root) else []
        except OSError as error:
            raise RunDirError(f"{self.url} cannot be read ({error})") from error
        return sorted(name for path in found if _NAME.fullmatch(name := str(path).rstrip("/").rpartition("/")[2]))

    def count(self, name: str) -> int:
        """Return the number of runs of a baseline, without reading them."""
        return len(self._places(name))

    def runs(self, name: str) -> list[RunSummary]:
        """Return the runs of a baseline, the oldest first.

        Raises:
            ConfigError: there is no such baseline.
        """
        places = self._places(name)
        if not places:
            known = ", ".join(self.names()) or "none"
            raise ConfigError(f"there is no baseline {name} in {self.url}; it has {known}")
        return [run for place in places if (run := self._read(place)) is not None]

    def side(self, name: str) -> Side:
        """Return a baseline to compare with."""
        return from_summaries(name, self.runs(name))

    def put(self, name: str, run: Side, created: str, *, replace: bool) -> int:
        """Add a run to a baseline.

        Args:
            name: of the baseline.
            run: the run.
            created: when it ended.
            replace: remove the earlier runs.

        Returns:
            The number of runs that the baseline has then.

        Raises:
            ConfigError: the run is of another job than the baseline's, is in it already or only a report, or the name
                is invalid.
        """
        if not _NAME.fullmatch(name):
            raise ConfigError(f"{name!r} is no name of a baseline; letters, digits, dots and dashes are")
        places = self._places(name)
        if not (run.ranks or len(run.unrecorded_ms)):
            raise ConfigError(f"{run.name} is only a report; a baseline keeps runs with their traces or step logs")
        summary = summary_of(run, created)
        if places and not replace:
            earlier = self.runs(name)
            differs = other_job(from_summaries(name, earlier), run)
            if differs:
                raise ConfigError(
                    f"{run.name} is not put into baseline {name}: {'; '.join(differs)}; "
                    f"`rankscope baseline set {name}` begins anew"
                )
            if any(_same(summary, own) for own in earlier):  # it would show no scatter between runs
                raise ConfigError(f"{run.name} is in baseline {name} already")
        files, root = self._open()
        number = 1 + max((int(found[1]) for place in places if (found := _file(place))), default=0)
        place = f"{root}/{name}/{number:04d}-{secrets.token_hex(4)}.json.gz"
        # Records are converted while writing: copying a thousand ranks' columns first would take half a minute.
        text = json.dumps(summary, default=vars, allow_nan=False)
        packed = gzip.compress(text.encode(), 6, mtime=0)
        try:
            files.makedirs(f"{root}/{name}", exist_ok=True)
            files.pipe_file(f"{place}.part", packed)
            files.mv(f"{place}.part", place)
            gone = places if replace else places[1 : max(len(places) + 2 - KEPT, 1)]
            for old in gone:
                with suppress(FileNotFoundError):  # another job has removed it
                    files.rm(old)
        except OSError as error:
            raise RunDirError(f"{self.url} cannot be written ({error})") from error
        return 1 if replace else len(places) + 1 - len(gone)

    def _places(self, name: str) -> list[str]:
        if not _NAME.fullmatch(name):
            raise ConfigError(f"{name!r} is no name of a baseline; letters, digits, dots and dashes are")
        files, root = self._open()
        try:
            found = files.ls(f"{root}/{name}", detail=False) if files.exists(f"{root}/{name}") else []
        except OSError as error:
            raise RunDirError(f"{self.url} cannot be read ({error})") from error
        numbered = [(int(file[1]), str(path)) for path in found if (file := _file(str(path)))]
        return [path for _, path in sorted(numbered)]

    def _read(self, place: str) -> RunSummary | None:
        """Return a run; None if another job has removed it since the files were listed."""
        files, _ = self._open()
        try:
            with files.open(place, "rb") as file:
                unpack = zlib.decompressobj(wbits=31)
                text = unpack.decompress(file.read(MOST_BYTES), MOST_BYTES)
            if not unpack.eof:
                raise ForeignFileError(f"{place} is cut off, or holds more than {MOST_BYTES >> 20} MiB; remove it")
            return from_json(RunSummary, text)
        except FileNotFoundError:
            return None
        except (OSError, ValueError, zlib.error) as error:
            raise ForeignFileError(f"{place} is no run of a baseline ({error}); remove it") from error

    def _open(self) -> tuple[Any, str]:
        """Return the file system and the path in it. fsspec comes with torch; it names the packages that it needs for a
        URL."""
        import fsspec

        try:
            files, root = fsspec.core.url_to_fs(self.url)
        except (ImportError, ValueError, OSError) as error:
            raise RunDirError(f"{self.url} cannot be used as a place for baselines: {error}") from error
        return files, str(root).rstrip("/")


def _same(one: RunSummary, other: RunSummary) -> bool:
    """Whether two summaries are of one run."""
    return (one.name, one.created, one.step_ms, one.ranks) == (other.name, other.created, other.step_ms, other.ranks)


def _file(place: str) -> re.Match[str] | None:
    return _FILE.fullmatch(place.rpartition("/")[2])
