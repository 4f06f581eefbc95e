"""Columns of all ranks in, one timeline on one clock out; and a loopback server to look at it.

::

    selection  what the user wants in it
    scene      traces -> windows with clocks, matched calls, waits and the verdict
    names      any text -> JSON that every viewer takes
    tracks     ids of processes and threads, lanes in which slices nest
    derived    steps, wait, transfer, culprit intervals
    budget     which events fit
    parts      one rank of one window -> slices on tracks
    arrows     what belongs together
    text       a slice or an arrow -> a line of Chrome JSON
    lines      all lines, in order and within the bound
    output     where it goes
    merge      traces -> one gzip file
    page       hands the timeline to the Perfetto UI
    serve      report and timeline on loopback, for the Perfetto UI
"""
