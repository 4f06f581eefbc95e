"""Read one run from its various forms, and determine how much its numbers vary."""
