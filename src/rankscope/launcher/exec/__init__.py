"""`rankscope exec` and `attach`: any command, or a process that runs already."""
