"""Table of all checks. To add one, add a function to a file of this folder, and a line here."""

from __future__ import annotations

from collections.abc import Iterator

from rankscope.doctor import devices, software, storage
from rankscope.doctor.base import Check, CheckInput, CheckResult

__all__ = ["CHECKS", "examine"]

CHECKS: tuple[Check, ...] = (
    software.versions,
    software.launcher,
    devices.accelerators,
    devices.cupti,
    devices.other_profilers,
    storage.shared_folder,
    storage.own_disk,
    storage.limits,
    storage.protection,
    software.plan,
)


def examine(question: CheckInput, checks: tuple[Check, ...] = CHECKS) -> Iterator[CheckResult]:
    """Run all checks and yield their findings; a check that raises yields a note instead."""
    for check in checks:
        yield from _answers(check, question)


def _answers(check: Check, question: CheckInput) -> Iterator[CheckResult]:
    try:
        yield from check(question)
    except Exception as error:
        name = getattr(check, "__name__", "a check").replace("_", " ")
        yield CheckResult("note", f"{name} could not be looked at: {type(error).__name__}: {error}")
