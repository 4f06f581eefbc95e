"""Which files are traces, of which rank and window; all of them read in parallel, or from the cache."""
