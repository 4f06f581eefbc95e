"""Between windows: what the logs of all steps show about the whole run, and why a job hangs."""
