"""Of a job that runs: what its helpers are told, what they saw of its steps, and where it stands."""
