"""Traces reduced to columns where they are, one object for many, and a report from these objects alone."""
