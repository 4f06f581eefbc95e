"""A run directory in an object store: a copy on this node's own disk, and the process that keeps the two in step."""
