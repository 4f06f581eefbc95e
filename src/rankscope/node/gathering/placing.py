"""Place a file in the run directory: encrypted if requested, verified, and its checksum kept for the manifest."""

from __future__ import annotations

import errno
import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO

from rankscope.errors import RunDirError
from rankscope.records.manifest import FileSum
from rankscope.rundir.files import (
    copy_new,
    place,
    replace_text,
    rewrite,
    sha256_of,
    stored,
    temporary_beside,
    write_new,
)
from rankscope.rundir.layout import RunDir
from rankscope.rundir.sealing import Seal, sealed_name

__all__ = ["Placing", "Tee"]


class Tee:
    """A file that also passes every block to a function."""

    def __init__(self, raw: IO[bytes], update: Callable[[bytes], None]) -> None:
        self._raw = raw
        self._update = update

    def write(self, block: bytes) -> int:
        """Write a block."""
        self._update(block)
        return self._raw.write(block)

    def flush(self) -> None:
        """Flush the file."""
        self._raw.flush()


class Placing:
    """Places files in a run directory and keeps their checksums.

    Args:
        run_dir: of the run.
        recipients: of age, for whom all files are encrypted; empty for no encryption.
        node: whose claim has to be there whenever something is placed; None: this is not checked.

    Raises:
        ConfigError: one of them is invalid, or the encryption library is missing.
    """

    def __init__(self, run_dir: RunDir, recipients: Sequence[str] = (), node: str | None = None) -> None:
        self._run_dir = run_dir
        self._claim = run_dir.node_claim(node) if node is not None else None
        self._seal = Seal(recipients) if recipients else None
        self.sums: dict[str, FileSum] = {}
        """Checksum of each file that was placed, by its path in the run directory."""

    @property
    def sealed(self) -> bool:
        """Whether placed files are encrypted."""
        return self._seal is not None

    def name(self, target: Path) -> Path:
        """Return the name of a file in the run directory."""
        return sealed_name(target) if self._seal is not None else target

    def require(self) -> None:
        """Check that this is the run directory that was claimed: where its disk was unmounted, the folder in its place
        is on another one.

        Raises:
            OSError: it is not.
        """
        if self._claim is not None and not self._claim.exists():
            raise OSError(
                errno.ENOENT, f"{self._run_dir.path} is not there any more: its disk was unmounted, or it was removed"
            )

    def folder(self, path: Path) -> None:
        """Make a folder of the run directory, and those above it.

        Raises:
            OSError: it cannot be made, or see :meth:`require`.
        """
        self.require()
        path.mkdir(parents=True, exist_ok=True)

    def copy(self, source: Path, target: Path) -> None:
        """Place a copy of a file.

        Raises:
            RunDirError: a different file has the name.
            OSError: the copy could not be written.
        """
        self.require()
        if self._seal is None:
            self.known(target, copy_new(source, target))
            return
        with source.open("rb") as plain:
            self._sealed(plain, self.name(target))

    def record(self, target: Path, text: str) -> None:
        """Place a text that must not exist yet.

        Raises:
            RunDirError: it exists.
            OSError: it could not be written.
        """
        self.require()
        data = text.encode("utf-8")
        data = data if self._seal is None else self._seal.data(data)
        write_new(self.name(target), data)
        self.known(self.name(target), hashlib.sha256(data).hexdigest())

    def again(self, target: Path, text: str) -> None:
        """Place a text, which replaces an older one."""
        self.require()
        if self._seal is None:
            rewrite(target, text)
        else:
            self.passing(target, text)
        self.known(self.name(target), sha256_of(self.name(target)))

    def passing(self, target: Path, text: str) -> None:
        """Place a file that is renewed while the job runs; it replaces the older one, and no checksum is kept."""
        self.require()
        if self._seal is None:
            replace_text(target, text)
        else:
            with temporary_beside(self.name(target)) as temporary:
                temporary.write_bytes(self._seal.data(text.encode("utf-8", "replace")))
                temporary.replace(self.name(target))

    def known(self, target: Path, sha256: str) -> None:
        """Keep the checksum of a file that is in its place."""
        name = target.relative_to(self._run_dir.path).as_posix()
        self.sums[name] = FileSum(sha256=sha256, bytes=target.stat().st_size)

    def sum_of(self, target: Path) -> str:
        """Return the checksum of a file that was placed."""
        return self.sums[self.name(target).relative_to(self._run_dir.path).as_posix()].sha256

    def complete(self, targets: Sequence[Path]) -> None:
        """Keep the checksums of files that an earlier helper of this node has placed."""
        for target in targets:
            named = self.name(target)
            if named.relative_to(self._run_dir.path).as_posix() not in self.sums and named.is_file():
                self.known(named, sha256_of(named))

    def _sealed(self, plain: IO[bytes], target: Path) -> None:
        """Encrypt a stream into a file. An existing file was placed completely; it cannot be compared, because each
        encryption yields another file."""
        assert self._seal is not None
        digest = hashlib.sha256()
        with temporary_beside(target) as temporary:
            with temporary.open("wb") as raw:
                self._seal.stream(plain, Tee(raw, digest.update))  # type: ignore[arg-type]
            stored(temporary, digest.hexdigest())
            try:
                place(temporary, target)
            except RunDirError:
                if not target.stat().st_size:
                    raise
                self.known(target, sha256_of(target))
                return
        self.known(target, digest.hexdigest())
