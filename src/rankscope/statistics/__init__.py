"""Numbers that several rooms judge by: medians, usual steps, changes, chance, and what a cost must reach."""
