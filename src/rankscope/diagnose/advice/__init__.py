"""What to do, with what it would gain and how to check it: one file for each piece of advice, and their table."""
