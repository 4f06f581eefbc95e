"""The helper process of a node, beside the training processes: takes traces from the ranks, checks them, places them in
the run directory, and finally reports what is there and what is missing."""
