"""Encrypted runs, and runs in a store, on the command line: what every verb does with --identity and with URLs."""

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
"""Files of a run that tell how its job is doing."""
OF_MANIFEST = re.compile(r"run\.json\Z|agent\.json\Z|nodes/|stuck/|attempt_.*\.json\Z")
"""Files that run.json is put together of, where several nodes wrote an encrypted run."""


@contextlib.contextmanager
def opened_runs(
    paths: Sequence[Path], arguments: argparse.Namespace, *, wanted: Callable[[str], object] = lambda _: True
) -> Iterator[list[Path]]:
    """The paths of what can be read: those that were given, or copies of encrypted ones and of those in a store.

    Copies are removed in the end.

    Args:
        paths: runs, folders, files.
        arguments: with ``identity``.
        wanted: which files of a run the verb looks at.

    Raises:
        ConfigError: one is encrypted and no key was given, or the key cannot be used.
        ForeignFileError: one was encrypted for others, or is damaged.
    """
    from rankscope.privacy.unlock import opened
    from rankscope.stores.fetched import fetched

    with contextlib.ExitStack() as stack:
        here = [stack.enter_context(fetched(path, wanted=wanted, tell=say)) for path in paths]
        yield [stack.enter_context(opened(path, arguments.identity, wanted=wanted)) for path in here]


def missing_one(paths: Sequence[Path]) -> Path | None:
    """The first that is neither there nor the URL of a store."""
    return next((path for path in paths if not path.exists() and url_of(path) is None), None)


def refuse_beside(paths: Sequence[Path], output: Path | None, option: str = "--output") -> None:
    """What is made of an encrypted run is not encrypted, and does not lie beside it.

    Raises:
        ConfigError: it would.
    """
    from rankscope.privacy.unlock import is_sealed

    if output is None:
        return
    for path in paths:
        if output.resolve().is_relative_to(path.resolve()) and is_sealed(path):
            raise ConfigError(f"{option} {output} lies in {path}, which is encrypted; name a private folder elsewhere")
