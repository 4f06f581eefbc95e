"""While the job runs: progress of the ranks, requests to them, and what is passed between nodes."""
