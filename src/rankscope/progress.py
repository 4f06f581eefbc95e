"""Progress of long work: bars with rates and remaining time on a terminal, otherwise one line for each stage."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TaskID, TextColumn, TimeRemainingColumn
from rich.text import Text

__all__ = ["ProgressCallbacks", "on_terminal", "show_progress"]

Say = Callable[[str], None]


class _Amount(ProgressColumn):
    """Column with ``12 of 80 MB, 35 MB/s`` or ``2 of 3``."""

    def render(self, task: Task) -> Text:
        done, total = task.completed, task.total or 0.0
        if task.fields["unit"] != "bytes":
            return Text(f"{done:.0f} of {total:.0f}")
        speed = task.finished_speed or task.speed
        rate = f", {speed / 1e6:,.0f} MB/s" if speed else ""
        return Text(f"{done / 1e6:,.0f} of {total / 1e6:,.0f} MB{rate}")


class ProgressCallbacks:
    """Callbacks for the stages of one verb. One bar is visible at a time, that of the callback called last."""

    def __init__(self, say: Say, bars: Progress | None) -> None:
        self._say, self._bars = say, bars
        self._seen: TaskID | None = None

    @property
    def drawn(self) -> bool:
        """Whether bars are drawn; otherwise each stage is a line."""
        return self._bars is not None

    def bytes(self, title: str) -> Callable[..., None]:
        """Return a callback that takes the number of bytes done and the total."""
        bars = self._bars
        if bars is None:
            return lambda *_: None
        task = bars.add_task(title, total=None, visible=False, start=False, unit="bytes")

        def tell(done: float, total: float, *_: object) -> None:
            self._look_at(bars, task)
            bars.update(task, completed=done, total=total, refresh=True)

        return tell

    def stages(self, total: int) -> Say:
        """Return a callback that takes the title of the next stage, called ``total`` times in all."""
        bars = self._bars
        if bars is None:
            return self._say
        task, numbers = (
            bars.add_task("", total=total, visible=False, start=False, unit="stages"),
            iter(range(total + 1)),
        )

        def tell(text: str) -> None:
            self._look_at(bars, task)
            bars.update(task, description=text, completed=next(numbers, total), refresh=True)

        return tell

    def _look_at(self, bars: Progress, task: TaskID) -> None:
        if self._seen == task:
            return
        if self._seen is not None:
            bars.update(self._seen, visible=False)
        bars.start_task(task)
        bars.update(task, visible=True)
        self._seen = task


def on_terminal(console: Console) -> bool:
    """Return whether bars can be drawn. NO_COLOR removes the colour, not the bars."""
    return console.is_terminal and not console.is_dumb_terminal


@contextmanager
def show_progress(say: Say, console: Console | None = None) -> Iterator[ProgressCallbacks]:
    """Draw progress on stderr while the block runs, and remove it at the end.

    Args:
        say: called with the title of each stage if bars cannot be drawn.
        console: where to draw; None: stderr.
    """
    console = console or Console(stderr=True)
    if not on_terminal(console):
        yield ProgressCallbacks(say, None)
        return
    columns = (TextColumn("{task.description}", markup=False), BarColumn(24), _Amount(), TimeRemainingColumn())
    # Output to stdout must stay on stdout, even if a bar is then drawn again below it.
    with Progress(*columns, console=console, transient=True, redirect_stdout=False) as bars:
        yield ProgressCallbacks(say, bars)
