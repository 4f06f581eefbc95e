"""Recommended actions, with gain and a way to check each: one file per piece of advice, and their table."""
