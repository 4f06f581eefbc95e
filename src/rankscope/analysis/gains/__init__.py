"""What a step would gain, by replay, if some of its work took less time."""
