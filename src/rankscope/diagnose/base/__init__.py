"""What rules are made of and may ask: the rule itself, which ranks are stragglers, contention, reasons for a cause."""
