"""Trace files in, typed columns out.

The way of the data, one module a station::

    find     paths -> candidate files and what lies beside them; foreign ones set aside with a reason
    read     file -> blocks of plain JSON text (gzip or not), bounded
    split    blocks -> head, chunks of whole events, tail
    events   one event as msgspec decodes it
    decode   chunk -> events -> rows
    repair   what is done about a chunk that is no JSON
    rows     events -> numpy columns
    memory   instants -> what the allocator held of each device
    numbers  JSON values of any type -> int64, nanoseconds included
    build    rows -> RankTrace, with meta, link and collectives
    columns  RankTrace: the contract with everything after
    windows  which window a trace is, where the path does not say
    cache    RankTrace <-> Parquet beside the trace
    load     all of it for many files, in parallel
"""
