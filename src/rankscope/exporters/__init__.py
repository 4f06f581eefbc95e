"""The numbers of a report where a team looks: one file a place, and a table (``table.py``)."""
