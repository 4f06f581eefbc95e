"""What may end a step, as it is seen from outside of the script: one file a signal, and a table in order of trust."""
