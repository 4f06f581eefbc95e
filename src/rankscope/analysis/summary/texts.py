"""Text of a summary: each kept once, and long ones cut to what tells them apart."""

from __future__ import annotations

import re
from zlib import crc32

from rankscope.trace.names import function

__all__ = ["Texts", "kernel_name", "operator_name"]

LONGEST = 240
"""Operators over a list of tensors name the shape of each: thousands of characters."""

_COUNTED = re.compile(r"(?<=[a-z])_\d+$")
"""What Inductor appends to a kernel's name to count it: the same kernel has another number in another build."""
_REGION = re.compile(r"(Torch-Compiled Region|CompiledFunction).*")
_FX_GRAPH = re.compile(r"(## Call CompiledFxGraph) \w+ ##")


class Texts:
    """Gives each text a place."""

    def __init__(self) -> None:
        self.strings: list[str] = []
        self._places: dict[str, int] = {}

    def place(self, text: str) -> int:
        """Place of a text, -1 of an empty one. Beyond :data:`LONGEST` characters a checksum stands for the rest."""
        if not text:
            return -1
        if len(text) > LONGEST:
            text = f"{text[:LONGEST]}... {crc32(text.encode('utf-8', 'replace')):08x}"
        if text not in self._places:
            self._places[text] = len(self.strings)
            self.strings.append(text)
        return self._places[text]


def kernel_name(name: str) -> str:
    """Short name of a kernel, the same in every build of the program that launches it."""
    short = function(name) or name
    return _COUNTED.sub("", short) if short.startswith("triton_") else short


def operator_name(name: str) -> str:
    """Name of an operator, likewise: compilers put order numbers and hashes into the ranges that they write."""
    if name.startswith("triton_"):
        return _COUNTED.sub("", name)
    return _FX_GRAPH.sub(r"\1", _REGION.sub(r"\1", name))
