"""Rules on the whole job: what limits its step, whichever rank it is."""
