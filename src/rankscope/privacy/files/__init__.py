"""A copy of each kind of file without what reveals."""
