"""Sections on the verdict: what to do, what was found, and how far to trust it."""
