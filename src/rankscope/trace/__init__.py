"""From trace files to typed columns.

The path of the data, one module per stage::

    find     paths -> candidate files and files beside them; other files are listed with a reason
    read     file -> blocks of plain JSON text (gzip or not), bounded
    split    blocks -> head, chunks of whole events, tail
    events   one event as msgspec decodes it
    decode   chunk -> events -> rows
    repair   repairs of a chunk that is not valid JSON
    rows     events -> numpy columns
    memory   instants -> allocated memory of each device
    numbers  JSON values of any type -> int64, nanoseconds included
    build    rows -> RankTrace, with meta, link and collectives
    columns  RankTrace: the interface to all later stages
    windows  the window of a trace, if the path does not state it
    cache    RankTrace <-> Parquet beside the trace
    load     all of it for many files, in parallel
"""
