"""The files of a run: their names, atomic writes, encryption, and the claim of a node in a run directory."""
