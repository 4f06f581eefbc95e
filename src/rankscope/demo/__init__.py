"""A small job with a planted fault, for a first look."""

from __future__ import annotations

from pathlib import Path

__all__ = ["SCRIPT"]

SCRIPT = Path(__file__).with_name("train.py")
"""The script that is trained."""
