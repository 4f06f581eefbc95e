"""Rows of the report, pooled over the windows. One module a table."""
