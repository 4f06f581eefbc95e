"""Combine the run directories of one job whose nodes share no folder into one run directory."""
