"""Texts of a summary. Each is stored once, and long ones are shortened but stay distinct."""

from __future__ import annotations

import re
from zlib import crc32

from rankscope.trace.names import function

__all__ = ["Texts", "kernel_name", "operator_name"]

LONGEST = 240
"""Operators over a list of tensors name the shape of each, which takes thousands of characters."""

_COUNTED = re.compile(r"(?<=[a-z])_\d+$")
"""The counter that Inductor appends to a kernel's name; it differs between builds for the same kernel."""
_REGION = re.compile(r"(Torch-Compiled Region|CompiledFunction).*")
_FX_GRAPH = re.compile(r"(## Call CompiledFxGraph) \w+ ##")


class Texts:
    """Assigns an index to each text."""

    def __init__(self) -> None:
        self.strings: list[str] = []
        self._places: dict[str, int] = {}

    def place(self, text: str) -> int:
        """Return the index of a text, -1 for an empty one. Beyond :data:`LONGEST` characters a checksum replaces the
        rest."""
        if not text:
            return -1
        if len(text) > LONGEST:
            text = f"{text[:LONGEST]}... {crc32(text.encode('utf-8', 'replace')):08x}"
        if text not in self._places:
            self._places[text] = len(self.strings)
            self.strings.append(text)
        return self._places[text]


def kernel_name(name: str) -> str:
    """Return the short name of a kernel, which is the same in every build of the program that launches it."""
    short = function(name) or name
    return _COUNTED.sub("", short) if short.startswith("triton_") else short


def operator_name(name: str) -> str:
    """Return the name of an operator without order numbers and hashes, which compilers put into the ranges that they
    write."""
    if name.startswith("triton_"):
        return _COUNTED.sub("", name)
    return _FX_GRAPH.sub(r"\1", _REGION.sub(r"\1", name))
