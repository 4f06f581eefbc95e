"""Records of a running job: the tasks of its helpers, what they saw of its steps, and its state."""
