"""What rules are made of and may use: the rule itself, which ranks are stragglers, contention, reasons for a cause."""
