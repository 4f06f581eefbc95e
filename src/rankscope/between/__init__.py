"""Between windows: what the logs of all steps tell of the whole run, and why a job stands still."""
