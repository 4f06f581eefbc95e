"""Parts that sections and formats share: tables, wording, rounding, definitions of numbers."""
