"""Parts that verbs share (arguments, console output), and longer parts of single verbs."""
