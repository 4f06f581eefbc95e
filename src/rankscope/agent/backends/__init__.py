"""Ways to record a window."""
