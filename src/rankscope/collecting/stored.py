"""Transfer of parts through an object store: each node uploads its part, and one machine downloads all."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path

from rankscope.collecting.parts import part_of
from rankscope.errors import RunDirError
from rankscope.rundir.layout import RunDir
from rankscope.stores.mirror import Mirror

__all__ = ["put_part", "taken_parts"]

_PARTS = "parts"


def put_part(path: Path, url: str) -> int:
    """Upload a node's part to a store, below ``parts/NODE``, run.json last. Existing files are not uploaded again.

    Args:
        path: this node's run directory.
        url: URL in the store, the same for all nodes of the job.

    Returns:
        Number of uploaded files.

    Raises:
        RunDirError: the store cannot be used, or has the part of another machine with this node's name.
    """
    node = part_of(path).nodes[0]
    mirror = Mirror(path, f"{url.rstrip('/')}/{_PARTS}/{node}")
    try:
        claim = RunDir(path).node_claim(node)
        if not mirror.claim(claim.relative_to(path).as_posix()):
            raise RunDirError(f"{mirror.url} is the part of another machine or another job; name another URL")
        return mirror.push()
    except RunDirError:
        raise
    except Exception as error:  # stores raise errors of their own
        raise _unusable(url, error) from error


@contextlib.contextmanager
def taken_parts(url: str) -> Iterator[list[Path]]:
    """Yield copies of all complete parts in a store, which are removed at the end.

    Raises:
        RunDirError: the store cannot be read, or holds no part.
    """
    with tempfile.TemporaryDirectory(prefix="rankscope_parts_") as name:
        folder = Path(name)
        try:
            Mirror(folder, url).pull(f"{_PARTS}/")
        except RunDirError:
            raise
        except Exception as error:
            raise _unusable(url, error) from error
        parts = [path for path in sorted((folder / _PARTS).glob("*")) if RunDir(path).ended]
        if not parts:
            raise RunDirError(
                f"{url} holds no part of a node; `rankscope collect RUN --to {url}` on each puts it there"
            )
        yield parts


def _unusable(url: str, error: Exception) -> RunDirError:
    return RunDirError(f"{url} cannot be used ({error}); check the address and your rights")
