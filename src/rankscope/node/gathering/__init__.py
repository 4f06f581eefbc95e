"""From the spool to the run directory: files that ranks left are checked, placed, and read back."""
