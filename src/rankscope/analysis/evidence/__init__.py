"""From the windows to the one record that the diagnosis reads."""
