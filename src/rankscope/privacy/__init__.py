"""A run or traces in, a copy without what reveals models, machines and people out; and who did what with a run."""
