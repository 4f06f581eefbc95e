"""All input formats. To add one: a package beside ``trace.kineto`` that defines a ``FORMAT``, and a line here.

Other packages add formats through the entry points ``rankscope.formats`` (see :mod:`rankscope.plugins`). A file that
several formats recognise is read by the first of them, so a later format takes no files from earlier ones.
"""

from __future__ import annotations

import re

from rankscope import plugins
from rankscope.trace.format import Format
from rankscope.trace.kineto import build as kineto

__all__ = ["BY_NAME", "FORMATS", "OURS", "is_offered", "recognise"]

OURS: tuple[Format, ...] = (kineto.FORMAT,)

FORMATS = (*OURS, *plugins.load("formats", Format, frozenset(form.name for form in OURS), "name"))

BY_NAME = {form.name: form for form in FORMATS}

_OFFERED = re.compile("|".join(f"(?:{form.files})" for form in FORMATS), re.IGNORECASE)


def is_offered(name: str) -> bool:
    """Return whether a file with this name, found in a folder, is opened."""
    return bool(_OFFERED.search(name))


def recognise(head: bytes) -> Format | None:
    """Return the format of a file that begins with these bytes; None if none fits (yet)."""
    return next((form for form in FORMATS if _fits(form, head)), None)


def _fits(form: Format, head: bytes) -> bool:
    if form in OURS:
        return form.fits(head)
    try:
        return bool(form.fits(head))
    except Exception as error:
        plugins.failed("formats", form.name, error)
        return False
