"""Small jobs with a planted fault, for a first look and to test the diagnosis against a known truth."""

from __future__ import annotations

from pathlib import Path

__all__ = ["JOBS"]

JOBS = Path(__file__).parent
"""The folder of the training scripts."""
