"""Findings: one function each, in the table of ``diagnose.rules.table``."""
