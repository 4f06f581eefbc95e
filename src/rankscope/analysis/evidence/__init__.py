"""From the windows to the evidence that the diagnosis reads."""
