"""Download a run from a store to a temporary folder, and check its files against run.json."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from rankscope.errors import ForeignFileError, RunDirError
from rankscope.records.manifest import RunManifest
from rankscope.rundir.files import sha256_of
from rankscope.rundir.layout import RunDir
from rankscope.rundir.record_files import read_record, run_limit
from rankscope.rundir.urls import last_name, url_of
from rankscope.stores.mirror import Mirror

__all__ = ["fetched"]

_SAYS = r"run\.json|agent\.json|nodes/|kept\.json|stuck/|attempt_\d+/pulse/"
_RECORDED = r"attempt_"


@contextlib.contextmanager
def fetched(
    path: Path, *, wanted: Callable[[str], object] = lambda _: True, tell: Callable[[str], None] = lambda _: None
) -> Iterator[Path]:
    """Yield a path that can be read: the path itself, or for the URL of a run a copy, which is removed at the end.

    Args:
        path: a path, or a URL converted to a ``Path``.
        wanted: whether the caller needs a file, by its path within the run.
        tell: called with a message for each file that is left out because its size or SHA-256 differs from run.json.

    Raises:
        RunDirError: there is no run at the URL, or its store cannot be read.
    """
    url = url_of(path)
    if url is None:
        yield path
        return
    folder = Path(tempfile.mkdtemp(prefix="rankscope_fetched_"))  # 0700
    try:
        target = folder / last_name(url)
        target.mkdir()
        try:
            mirror = Mirror(target, url)
            found = mirror.pull(_SAYS)
            if any(map(wanted, ("attempt_0/window_000/rank_00000.trace.json.gz", "attempt_0"))):
                found += mirror.pull(_RECORDED)
        except RunDirError:
            raise
        except Exception as error:  # stores raise errors of their own
            raise RunDirError(f"{url} cannot be read ({error}); check the address and your rights") from error
        if not found:
            raise RunDirError(f"{url} holds no run; check the address")
        _leave_out(RunDir(target), url, tell)
        yield target
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _leave_out(run_dir: RunDir, url: str, tell: Callable[[str], None]) -> None:
    """Remove files whose size or SHA-256 differs from run.json. Without run.json nothing can be checked."""
    if not run_dir.manifest.exists():
        if not run_dir.sealed_manifest.exists():
            tell(f"{url} has no run.json: its job runs, or could not bring all of it there")
        return
    try:
        files = read_record(RunManifest, run_dir.manifest, run_limit(run_dir)).files
    except ForeignFileError as error:
        raise RunDirError(f"{url}: {error}") from error
    for name, known in files.items():
        path = run_dir.path / name
        if path.is_file() and (path.stat().st_size != known.bytes or sha256_of(path) != known.sha256):
            tell(f"{url}/{name} is not the file that run.json knows, and is left out")
            path.unlink()
