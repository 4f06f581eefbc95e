"""Clock alignment of all ranks, and what depends on it: the job's steps, and which rank waits for which."""
