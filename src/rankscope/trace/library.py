"""Definition of a communication library: names of its kernels and operators, with samples that are tests."""

from __future__ import annotations

import re
from dataclasses import dataclass

__all__ = ["Library"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Library:
    """One library. Patterns are regular expressions, searched ignoring case."""

    name: str
    kernels: str = ""
    """Functions of its kernels that move data between ranks or wait for another rank; empty if it has none."""
    fused: str = ""
    """*Whole* names of kernels that compute and communicate at once: a matrix product that gathers its input, experts
    with dispatch and combine. An all-reduce that also normalises its result is not such a kernel."""
    prefix: str = ""
    """Prefix of its annotations and CPU operators: ``gloo`` for ``gloo:all_reduce``."""
    on_host: bool = False
    """Whether an event with the prefix is the call itself, and not only its launch."""
    kinds: tuple[tuple[str, str], ...] = ()
    """(part of a kernel's name, kind of collective), for names that do not contain the collective."""
    samples: tuple[tuple[str, str], ...]
    """(name of a kernel or operator, kind of collective that it shows; ``unknown`` if it shows none)."""
    others: tuple[str, ...] = ()
    """Kernels of the library, or named like them, that do not leave the device."""

    def __post_init__(self) -> None:
        """Reject a pattern that cannot be compiled, since all rows are compiled together later."""
        for pattern in (self.kernels, self.fused, self.prefix):
            re.compile(pattern)
