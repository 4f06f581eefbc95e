"""Between windows: what the logs of all steps show about the whole run."""
