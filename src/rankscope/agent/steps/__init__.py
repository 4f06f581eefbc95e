"""Recognition of training steps, and the log of all steps."""
