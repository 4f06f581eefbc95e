"""Trace files in, typed columns out.

The way of the data, one module a station::

    find     paths -> candidate files, foreign ones set aside with a reason
    read     file -> blocks of plain JSON text (gzip or not), bounded
    split    blocks -> head, chunks of whole events, tail
    decode   chunk -> rows of typed columns
    repair   what is done about a chunk that is no JSON
    numbers  JSON values -> int64, nanoseconds included
    build    rows -> RankTrace (columns), with meta, link and collectives
    cache    RankTrace <-> Parquet beside the trace
    load     all of it for many files, in parallel
"""
