"""One module a verb: its arguments, and what it does. Those that belong together share a module."""
