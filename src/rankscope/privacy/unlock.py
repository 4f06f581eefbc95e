"""Open an encrypted run temporarily: in a private folder on this machine's own disk."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from rankscope.errors import ConfigError, ForeignFileError
from rankscope.node.combined import combined
from rankscope.records.codec import to_json
from rankscope.rundir.layout import RunDir
from rankscope.rundir.sealing import SEALED, identities_of, unseal

__all__ = ["is_sealed", "opened"]

_MOST_BYTES = 1 << 36


def is_sealed(path: Path) -> bool:
    """Return whether a path is an encrypted file, or a folder with such files."""
    if not path.is_dir():
        return path.suffix == SEALED
    return any(name.endswith(SEALED) for _, _, names in os.walk(path) for name in names)


@contextlib.contextmanager
def opened(path: Path, identity: Path | None, *, wanted: Callable[[str], object] = lambda _: True) -> Iterator[Path]:
    """Yield a readable path: ``path`` itself if it is not encrypted, else a copy that is removed at the end.

    Args:
        path: a run, a folder or a file.
        identity: file with the key.
        wanted: selects the files of a folder that are decrypted, by their path in it, without ``.age``.

    Raises:
        ConfigError: it is encrypted and no key was given, or the key cannot be used.
        ForeignFileError: it was encrypted for other recipients, or is corrupt.
    """
    if not is_sealed(path):
        yield path
        return
    if identity is None:
        raise ConfigError(f"{path} is encrypted (age); give the key of a recipient with --identity FILE")
    identities = identities_of(identity)
    folder = Path(tempfile.mkdtemp(prefix="rankscope_opened_"))  # 0700
    try:
        yield _copied(path, folder / path.resolve().name, identities, wanted)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _copied(path: Path, target: Path, identities: list[object], wanted: Callable[[str], object]) -> Path:
    if not path.is_dir():
        target = target.with_name(target.name.removesuffix(SEALED))
        unseal(path, target, identities, _MOST_BYTES)
        return target
    for where, _, names in os.walk(path):
        into = target / Path(where).relative_to(path)
        into.mkdir(parents=True, exist_ok=True)
        for name in sorted(names):
            plain = into / name.removesuffix(SEALED)
            if not wanted(plain.relative_to(target).as_posix()):
                continue
            if name.endswith(SEALED):
                unseal(Path(where, name), plain, identities, _MOST_BYTES)
            elif name + SEALED not in names and Path(where, name).is_file():
                shutil.copyfile(Path(where, name), plain)
    run_dir = RunDir(target)
    with contextlib.suppress(ForeignFileError):
        # the node that wrote run.json could not read the results of the others; the owner of the key can
        run_dir.manifest.write_text(to_json(combined(run_dir)), encoding="utf-8")
    return target
