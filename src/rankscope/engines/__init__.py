"""Engines that process the files of many ranks in parallel, each a ``concurrent.futures.Executor``."""
