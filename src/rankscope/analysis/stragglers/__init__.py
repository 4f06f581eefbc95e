"""What a late rank costs the job, by replay, and the causes of its extra time."""
