"""All ranks on one clock, and what is told from it: the job's steps, and who waits for whom."""
