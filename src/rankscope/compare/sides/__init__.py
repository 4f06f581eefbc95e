"""One run, read from wherever it is, and how much its numbers vary."""
