"""Traces reduced to columns where they are stored, one object for many traces, and a report from these objects
alone."""
