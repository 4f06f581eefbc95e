"""A run directory in an object store: a copy on this node's own disk, and what brings the two together."""
