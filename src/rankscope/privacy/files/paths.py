"""Names of files and folders -> names from which the same rank, window and job are read, and nothing else."""

from __future__ import annotations

import re

from rankscope.privacy.naming.tokens import Tokens
from rankscope.trace.files.naming import RANK_WORDS

__all__ = ["clean_path"]

_OURS = re.compile(r"attempt_\d{1,6}\Z|window_\d{1,6}\Z|pulse\Z|rank_\d{1,6}(?:\.oom)?(?:\.memory)?\.?", re.ASCII)
_SUFFIX = re.compile(r"(?:\.(?:json|trace|pt|gz|tmp|part))+$", re.IGNORECASE)
_KNOWN = frozenset({"trace", "traces", "profile", "profiler", "rank", "pt", "step", "window", "attempt", "profiling"})
_PIECE = re.compile(r"(?P<letters>[^\W\d_]+)|(?P<digits>\d+)|(?P<sign>[-_.=: ])|(?P<other>.)", re.S)
_LETTERS = str.maketrans("0123456789abcdef", "bcdfghjklmnpqvwx")
"""No vowels, and none of the letters of which words for ranks consist: they form no such word."""
_MOST_DIGITS = 4
"""Longer numbers are ids of processes, times and hashes."""


def clean_path(path: str, tokens: Tokens) -> str:
    """The path of a trace below the folder that was given; it ends in ``.json.gz``.

    Words and numbers that tell ranks stay, as do short numbers; other words become letters, the same for the same word.
    """
    *folders, name = path.split("/")
    stem = _SUFFIX.sub("", name)
    return "/".join([*(_clean(folder, tokens) for folder in folders), _clean(stem, tokens) + _ending(name)])


def _ending(name: str) -> str:
    return ".trace.json.gz" if ".trace." in name.lower() else ".json.gz"


def _clean(part: str, tokens: Tokens) -> str:
    if _OURS.fullmatch(part):
        return part
    done, place = [], 0
    for found in RANK_WORDS.finditer(part):
        done += [_replaced(part[place : found.start()], tokens), found[0]]
        place = found.end()
    return "".join([*done, _replaced(part[place:], tokens)]) or "_"


def _replaced(text: str, tokens: Tokens) -> str:
    done = []
    for piece in _PIECE.finditer(text):
        if piece["letters"]:
            word = piece["letters"]
            done.append(word if word.lower() in _KNOWN else _letters(tokens.token("path", word)))
        elif piece["digits"]:
            digits = piece["digits"]
            done.append(digits if len(digits) <= _MOST_DIGITS else _number(digits, tokens))
        else:
            done.append(piece["sign"] or "-")
    return "".join(done)


def _letters(token: str) -> str:
    return token.partition("_")[2][:8].translate(_LETTERS)


def _number(digits: str, tokens: Tokens) -> str:
    """Another number of as many digits."""
    least = 10 ** (len(digits) - 1)
    return str(least + tokens.number("path", digits, 9 * least))
