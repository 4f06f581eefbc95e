"""Names of files and folders, replaced by names that show the same rank, window and job, and nothing else."""

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
"""Without vowels and without the letters of words for ranks, so that no such word can result."""
_MOST_DIGITS = 4
"""Longer numbers are ids of processes, times and hashes."""


def clean_path(path: str, tokens: Tokens) -> str:
    """Return the path of a trace below the given folder, for the copy; it ends in ``.json.gz``.

    Words and numbers that show ranks are kept, as are short numbers. Other words are replaced by letters, equal ones by
    equal letters.
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
    for match in RANK_WORDS.finditer(part):
        done += [_replaced(part[place : match.start()], tokens), match[0]]
        place = match.end()
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
    """Return another number with the same count of digits."""
    least = 10 ** (len(digits) - 1)
    return str(least + tokens.number("path", digits, 9 * least))
