"""From the columns of all ranks to one timeline on one clock; and a loopback server to view it.

::

    selection        what the user selects
    prepare          traces -> windows with clocks, matched calls, waits and the verdict
    names            any text -> JSON that every viewer accepts
    tracks           ids of processes and threads, lanes in which slices nest
    derived_tracks   steps, waits, transfers, intervals of the straggler
    size_limit       which events fit
    lanes            what several ranks do in one step, for a picture
    rank_slices      one rank of one window -> slices on tracks
    flow_events      arrows between related slices
    json_lines       a slice or an arrow -> a line of Chrome JSON
    writer           all lines, in order and within the limit
    output           path of the file
    merge            traces -> one gzip file
    perfetto_page    passes the timeline to the Perfetto UI
    serve            report and timeline on loopback, for the Perfetto UI
"""
