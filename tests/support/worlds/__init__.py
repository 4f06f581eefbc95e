"""Simulated training jobs whose truth is known, because each can be simulated again without its fault.

The way of the data: :mod:`jobs` writes what each rank does in a step (a program), :mod:`faults` changes the programs of
those at fault, :mod:`engine` runs all programs against each other and gives every operation its times, :mod:`kineto`
writes what a profiler would have recorded of them, and :mod:`catalogue` lists the worlds that rankscope is judged by.

Nothing here uses code of the product: a mistake in its analysis cannot hide in the truth that it is held against.
"""
