"""Fuzzing: valid inputs (seeds), changes of them (mutations), and the programs that read them (worker)."""
