"""Verbs for before a job: what this machine can do, settings, a first try."""
