"""What two runs are compared by, one file a kind of rows, and a table (``table.py``)."""
