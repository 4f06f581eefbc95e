"""Ways to carry rank 0's announcements to the ranks of other nodes: one file per way, and a table."""
