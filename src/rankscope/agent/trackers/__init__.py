"""Experiment trackers that the script has open: one file each, and a table in ``table.py``."""
