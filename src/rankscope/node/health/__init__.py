"""State of the node's accelerators and of its host, sampled beside the job."""
