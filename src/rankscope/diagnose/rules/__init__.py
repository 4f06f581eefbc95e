"""Rules: one file for each kind of finding, in the table of ``diagnose.rules.table``."""
