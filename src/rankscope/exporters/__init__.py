"""Exporters of the numbers of a report to other tools: one file for each tool, and a table (``table.py``)."""
