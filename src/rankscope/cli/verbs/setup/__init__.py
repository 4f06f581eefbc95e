"""Verbs used before a job: checks of this machine, settings, the demo."""
