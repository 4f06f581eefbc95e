"""From the spool to the run directory: what ranks left is checked, placed, read back."""
