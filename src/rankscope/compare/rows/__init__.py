"""Quantities that two runs are compared by: one file per kind of rows, and a table (``table.py``)."""
