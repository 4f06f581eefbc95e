"""Evidence in, findings and a verdict out. Reads records, never traces."""
