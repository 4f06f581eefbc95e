"""Columns of all ranks in, one timeline on one clock out; and a loopback server to look at it.

::

    selection        what the user selects
    prepare          traces -> windows with clocks, matched calls, waits and the verdict
    names            any text -> JSON that every viewer takes
    tracks           ids of processes and threads, lanes in which slices nest
    derived_tracks   steps, waits, transfers, intervals of the straggler
    size_limit       which events fit
    rank_slices      one rank of one window -> slices on tracks
    flow_events      arrows between slices that belong together
    json_lines       a slice or an arrow -> a line of Chrome JSON
    writer           all lines, in order and within the limit
    output           where the file goes
    merge            traces -> one gzip file
    perfetto_page    hands the timeline to the Perfetto UI
    serve            report and timeline on loopback, for the Perfetto UI
"""
