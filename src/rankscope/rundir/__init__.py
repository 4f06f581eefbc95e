"""The files of a run: their names, atomic writes, and the claim of a node to its place in a run."""
