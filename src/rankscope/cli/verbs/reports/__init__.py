"""Verbs that read what was recorded: reports, comparisons, copies."""
