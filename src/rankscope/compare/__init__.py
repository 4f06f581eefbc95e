"""Two runs in, what became slower or faster and why out (:class:`rankscope.records.diff.RunDiff`)."""
