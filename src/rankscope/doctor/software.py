"""Checks of versions, of the launcher, and of what would be recorded. Packages are not imported; metadata is read."""

from __future__ import annotations

import platform
import sys
from collections.abc import Iterator
from importlib import metadata

from rankscope import __version__
from rankscope.capture_backends import recorder, resolve
from rankscope.config_summary import plan_in_words
from rankscope.doctor.base import CheckInput, CheckResult

__all__ = ["launcher", "plan", "versions"]

OLDEST_TORCH = (2, 6)
"""Oldest supported version, as in pyproject.toml; docs/compatibility.md lists the tested versions."""


def versions(_question: CheckInput) -> Iterator[CheckResult]:
    """Report the versions of rankscope, Python and torch."""
    yield CheckResult("ok", f"rankscope {__version__}, Python {platform.python_version()} ({sys.executable})")
    try:
        torch = metadata.version("torch")
    except metadata.PackageNotFoundError:
        yield CheckResult(
            "bad", "torch is not installed beside rankscope", "install rankscope where the job's torch is"
        )
        return
    digits = [part for part in torch.partition("+")[0].split(".")[:2] if part.isdigit()]
    if len(digits) == 2 and (int(digits[0]), int(digits[1])) < OLDEST_TORCH:
        yield CheckResult("bad", f"torch {torch} is older than 2.6", "update torch; the job runs, and is not recorded")
    else:
        yield CheckResult("ok", f"torch {torch}")


def plan(question: CheckInput) -> Iterator[CheckResult]:
    """Report what would be recorded, and by which backend."""
    backend, reason = resolve(question.config.capture.backend)
    yield CheckResult("ok", plan_in_words(question.config)[0])
    yield CheckResult(
        "note" if reason else "ok", f"recorded by {recorder(backend)}" + (f": {reason}" if reason else "")
    )


def launcher(_question: CheckInput) -> Iterator[CheckResult]:
    """Report the rank that a launcher gave to this process, as `rankscope exec` would read it."""
    import os

    from rankscope.rank_identity import identity_from

    found = identity_from(os.environ)
    if found is None:
        text = "no launcher has told this process a rank: `rankscope exec COMMAND` stays as the parent of the command"
        yield CheckResult("ok", text)
        return
    yield CheckResult("ok", f"rank {found.rank} of {found.world_size or 'an unknown number'}, told by {found.launcher}")
    if found.several_nodes and found.job is None:
        remedy = "start it by `rankscope run` with --rdzv-id, or call rankscope.attach in the script"
        yield CheckResult("bad", f"{found.launcher} gives this job of several nodes no name", remedy)
