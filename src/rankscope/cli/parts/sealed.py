"""Encrypted runs and runs in an object store, on the command line: ``--identity`` and URLs, for all verbs."""

from __future__ import annotations

import argparse
import contextlib
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from rankscope.cli.parts.console import say
from rankscope.errors import ConfigError
from rankscope.rundir.urls import url_of

__all__ = ["LIVE", "OF_MANIFEST", "missing_one", "opened_runs", "refuse_beside"]

LIVE = re.compile(r"nodes/.*claim|live/|stuck/")
"""Files of a run with the state of its running job."""
OF_MANIFEST = re.compile(r"run\.json\Z|agent\.json\Z|nodes/|stuck/|attempt_.*\.json\Z")
"""Files from which run.json is built if several nodes wrote an encrypted run."""


@contextlib.contextmanager
def opened_runs(
    paths: Sequence[Path], arguments: argparse.Namespace, *, wanted: Callable[[str], object] = lambda _: True
) -> Iterator[list[Path]]:
    """Yield readable paths: the given ones, or decrypted and downloaded copies, which are removed at the end.

    Args:
        paths: runs, folders, files, or URLs of runs in a store.
        arguments: parsed arguments, with ``identity``.
        wanted: whether the verb needs a file, by its path within the run; other files are not copied.

    Raises:
        ConfigError: a run is encrypted and no key was given, or the key cannot be used.
        ForeignFileError: a run was encrypted for other recipients, or is damaged.
    """
    from rankscope.privacy.unlock import opened
    from rankscope.stores.fetched import fetched

    with contextlib.ExitStack() as stack:
        here = [stack.enter_context(fetched(path, wanted=wanted, tell=say)) for path in paths]
        yield [stack.enter_context(opened(path, arguments.identity, wanted=wanted)) for path in here]


def missing_one(paths: Sequence[Path]) -> Path | None:
    """Return the first path that neither exists nor is the URL of a store; None if there is none."""
    return next((path for path in paths if not path.exists() and url_of(path) is None), None)


def refuse_beside(paths: Sequence[Path], output: Path | None, option: str = "--output") -> None:
    """Refuse an output within an encrypted run, because the output is not encrypted.

    Raises:
        ConfigError: the output lies within one of the paths, and that run is encrypted.
    """
    from rankscope.privacy.unlock import is_sealed

    if output is None:
        return
    for path in paths:
        if output.resolve().is_relative_to(path.resolve()) and is_sealed(path):
            raise ConfigError(f"{option} {output} lies in {path}, which is encrypted; name a private folder elsewhere")
