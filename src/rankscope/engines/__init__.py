"""Where work on many ranks is done: engines behind ``concurrent.futures.Executor``."""
