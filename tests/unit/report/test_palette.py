"""The colours of the kinds of time are distinguishable, also with colour blindness."""

from __future__ import annotations

import itertools
import re
from pathlib import Path

import pytest

from rankscope import report
from rankscope.report.plots import COLOURS

CSS = (Path(report.__file__).parent / "templates" / "report.css").read_text(encoding="utf-8")
KINDS = ("compute", "waiting", "transfer", "copy", "input", "host")
# Machado, Oliveira and Fernandes 2009, severity 1.0, for linear RGB.
SIGHTS = {
    "normal": ((1, 0, 0), (0, 1, 0), (0, 0, 1)),
    "protanopia": (
        (0.152286, 1.052583, -0.204868),
        (0.114503, 0.786281, 0.099216),
        (-0.003882, -0.048116, 1.051998),
    ),
    "deuteranopia": (
        (0.367322, 0.860646, -0.227968),
        (0.280085, 0.672501, 0.047413),
        (-0.011820, 0.042940, 0.968881),
    ),
    "tritanopia": (
        (1.255528, -0.076749, -0.178779),
        (-0.078411, 0.930809, 0.147602),
        (0.004733, 0.691367, 0.303900),
    ),
}


def palette(place: int) -> dict[str, str]:
    """Of the light page (0) or the dark one (1)."""
    line = re.findall(r"(?m)^ *--compute:.*$", CSS)[place]
    return dict(re.findall(r"--(\w+): (#[0-9a-f]{6})", line))


def lab(colour: str, sight: str) -> tuple[float, float, float]:
    """CIE L*a*b* (D65) of an sRGB colour as somebody sees it."""
    values = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [v / 12.92 if v <= 0.04045 else ((v + 0.055) / 1.055) ** 2.4 for v in values]
    r, g, b = (min(max(sum(m * v for m, v in zip(row, linear, strict=True)), 0), 1) for row in SIGHTS[sight])
    x = (0.4124 * r + 0.3576 * g + 0.1805 * b) / 0.95047
    y = 0.2126 * r + 0.7152 * g + 0.0722 * b
    z = (0.0193 * r + 0.1192 * g + 0.9505 * b) / 1.08883
    fx, fy, fz = (t ** (1 / 3) if t > 0.008856 else 7.787 * t + 16 / 116 for t in (x, y, z))
    return 116 * fy - 16, 500 * (fx - fy), 200 * (fy - fz)


@pytest.mark.parametrize("sight", SIGHTS)
@pytest.mark.parametrize(("place", "least"), [(0, 22), (1, 18)], ids=["light", "dark"])
def test_kinds_of_time_differ_for_everybody(place: int, least: float, sight: str) -> None:
    colours = palette(place)
    for one, other in itertools.combinations(KINDS, 2):
        pairs = zip(lab(colours[one], sight), lab(colours[other], sight), strict=True)
        assert sum((a - b) ** 2 for a, b in pairs) ** 0.5 >= least, (one, other)


def test_notebooks_have_the_colours_of_the_page() -> None:
    assert palette(0).items() >= COLOURS.items()
