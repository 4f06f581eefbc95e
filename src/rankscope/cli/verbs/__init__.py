"""One module for each verb, with its arguments and its implementation. Related verbs share a module."""
