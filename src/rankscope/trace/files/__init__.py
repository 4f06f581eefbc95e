"""Find the trace files, their ranks and windows; read all of them in parallel, or from the cache."""
