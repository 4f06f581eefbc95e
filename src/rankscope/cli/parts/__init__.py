"""What verbs share: arguments, how they speak, and longer pieces of one."""
