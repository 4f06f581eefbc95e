"""What a late rank costs the job, by replay, and what its extra time consists of."""
