"""Definition of rules, and what they share: the decision on stragglers, contention, reasons for a cause."""
