"""Text that any display can show: without control characters, limited in length, names shortened."""

from __future__ import annotations

import re

__all__ = ["clean", "elide", "keep_units", "one_line", "prose", "short_name", "to_ascii"]

_CONTROL = {code: 0x2400 + code for code in range(32) if code not in (9, 10)} | {127: 0x2421}
_CONTROL |= dict.fromkeys(range(0x80, 0xA0), 0xFFFD)
_CONTROL |= dict.fromkeys((*range(0x202A, 0x202F), *range(0x2066, 0x206A)), 0xFFFD)  # bidirectional overrides
_SPACE = re.compile(r"\s+")
_BEFORE_UNIT = re.compile(r"(?<=\d) (?=(?:%|[mµun]?s|[kMG]B(?:/s)?|±)(?!\w))|(?<=±) (?=\d)")
_NAMESPACES = re.compile(r"\b(?:at::native|at::cuda|at|c10|cutlass|std)::(?:\(anonymous namespace\)::)?")


def clean(text: str) -> str:
    """Replace characters that a display would interpret: control and escape characters, lone surrogates."""
    return text.encode("utf-8", "replace").decode("utf-8").translate(_CONTROL)


def one_line(text: object, limit: int = 400) -> str:
    """Return cleaned text without line breaks, at most ``limit`` characters."""
    return elide(clean(_SPACE.sub(" ", str(text))).strip(), limit)


def elide(text: str, limit: int) -> str:
    """Remove the middle of a long name: its end is often more informative than its middle."""
    if len(text) <= limit:
        return text
    head = (limit - 1) * 2 // 3
    return f"{text[:head]}…{text[len(text) - (limit - 1 - head) :]}"


def prose(text: object, limit: int = 400) -> str:
    """Return cleaned text without line breaks; a longer one is truncated at the end, between words."""
    line = clean(_SPACE.sub(" ", str(text))).strip()
    if len(line) <= limit:
        return line
    head, space, _ = line[:limit].rpartition(" ")
    return (head.rstrip(" ,;:") if space and len(head) > limit // 2 else line[: limit - 1]) + "…"


def keep_units(text: str, glue: str = "\N{NO-BREAK SPACE}") -> str:
    """Replace the space between a number and its unit by ``glue``, so that no line breaks there."""
    return _BEFORE_UNIT.sub(glue, text)


_ASCII = str.maketrans(
    {
        "µ": "u",
        "±": "+-",
        "…": "...",
        "→": "->",
        "\N{EN DASH}": "-",
        "\N{EM DASH}": "-",
        "\N{MULTIPLICATION SIGN}": "x",
        "\N{RIGHT SINGLE QUOTATION MARK}": "'",
        "\N{NO-BREAK SPACE}": " ",
    }
)


def to_ascii(text: str) -> str:
    """Return text that any encoding can represent: signs by their usual replacements, other letters as question
    marks."""
    return text.translate(_ASCII).encode("ascii", "replace").decode()


def short_name(name: str, limit: int = 88) -> str:
    """Return the short name of a kernel: without return type, common namespaces and parameters."""
    text = one_line(name, 4000).removeprefix("void ")
    text = _NAMESPACES.sub("", text)
    depth = 0
    for index, letter in enumerate(text):
        depth += (letter == "<") - (letter == ">")
        if letter == "(" and depth == 0 and index > 0:
            text = text[:index]
            break
    return elide(text, limit) or "(no name)"
