"""Rules: one file for each kind of finding, in the rooms ``ranks``, ``job`` and ``machine``, and their table."""
