"""Load objects of reduced traces, with the same result as loading the traces themselves."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from rankscope.errors import AnalysisError
from rankscope.records.report import SourceFile
from rankscope.reduced.store import places_in
from rankscope.trace.files.find import Candidate
from rankscope.trace.files.load import Decoded, LoadResult, put_together
from rankscope.trace.files.objects import SUFFIX, Contents, ObjectReader, ReducedFile
from rankscope.trace.files.shared import Shared

__all__ = ["load_objects"]


def load_objects(
    where: Sequence[str | Path], progress: Callable[[int, int, str], None] = lambda *_: None
) -> LoadResult:
    """Read objects that ``rankscope reduce`` made, from all nodes of a job.

    The result is that of :func:`~rankscope.trace.files.load.load_traces` over the same traces: paths, names and reasons
    are those of the machine on which they were read. An object that cannot be used is listed with the reason, and does
    not affect the others. If several objects hold the same trace, the first is used. Different traces can have the same
    path on several nodes.

    Args:
        where: objects, and folders and URLs of them.
        progress: called with objects done and objects in total, and the one just done.

    Raises:
        AnalysisError: there is none.
    """
    objects = [place for one in where for place in places_in(str(one))]
    if not objects:
        raise AnalysisError(
            f"no objects of reduced traces (*{SUFFIX}) in {', '.join(map(str, where))}; `rankscope reduce` makes them"
        )
    shared, files = Shared(), dict[tuple[str, tuple[int, ...]], tuple[Candidate, Decoded]]()
    aside: list[SourceFile] = []
    beside: list[Contents] = []
    for number, place in enumerate(objects, 1):
        try:
            with ObjectReader.open(place.name, place.open) as reader:
                beside.append(reader.contents)
                for file in reader.contents.files:
                    key = file.path, reader.checksums(file)
                    if key not in files or isinstance(files[key][1], str):
                        files[key] = _candidate(file), _decoded(reader, file, shared)
        except Exception as error:  # stores raise errors of their own
            aside.append(SourceFile(path=place.name, status="unusable", reason=str(error)))
        progress(number, len(objects), place.name)
    unused = {source.path: source for contents in beside for source in contents.aside}
    read = sorted(files.values(), key=lambda f: f[0].order)
    loaded = put_together(read, [*unused.values(), *aside], {})
    loaded.snapshots = _paths(path for contents in beside for path in contents.snapshots)
    loaded.step_logs = _paths(path for contents in beside for path in contents.pulses)
    return loaded


def _candidate(file: ReducedFile) -> Candidate:
    return Candidate(Path(file.path), file.name, file.name_rank, file.format, file.attempt, file.window)


def _decoded(reader: ObjectReader, file: ReducedFile, shared: Shared) -> Decoded:
    found = reader.decoded(file, Path(file.path))
    return found if isinstance(found, str) else [shared.take(trace) for trace in found]


def _paths(texts: Iterable[str]) -> list[Path]:
    """Return the paths that can be accessed here."""
    return sorted({path for text in texts if (path := Path(text)).is_file()})
