"""From evidence to findings and a verdict. Reads records, never traces."""
