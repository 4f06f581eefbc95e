"""Sweeps: several runs of each of several settings, and a table of the gain of each (``records/sweep.py``)."""
