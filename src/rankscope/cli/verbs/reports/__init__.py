"""Verbs that read recorded runs: reports, comparisons, copies."""
