"""Sections on ranks beside each other: who waits, when, and where."""
