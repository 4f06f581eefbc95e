"""Redaction of each kind of file."""
