"""Which steps are recorded."""
