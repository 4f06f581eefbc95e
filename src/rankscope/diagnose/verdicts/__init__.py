"""Wording of the verdict: one file per kind of answer."""
