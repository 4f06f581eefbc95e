"""Comparison of two runs: what became slower or faster, and why (:class:`rankscope.records.diff.RunDiff`)."""
