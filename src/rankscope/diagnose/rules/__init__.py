"""Rules: one file per kind of finding, in the folders ``ranks``, ``job`` and ``machine``, and their table."""
