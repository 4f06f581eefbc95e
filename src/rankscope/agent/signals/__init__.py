"""Signals that may mark the end of a step, seen from outside of the script: one file a signal, and a table ordered by
trust."""
