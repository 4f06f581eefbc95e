"""Call back when a module has been imported, without importing it."""

from __future__ import annotations

import sys

from rankscope.agent.process.guard import guarded

TYPE_CHECKING = False  # typing and importlib.abc take longer to import than this package
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType

__all__ = ["after_import"]


def after_import(name: str, callback: Callable[[], None]) -> None:
    """Call ``callback`` once, as soon as module ``name`` is imported; now if it is already."""
    if name in sys.modules:
        guarded(callback)()
    else:
        sys.meta_path.insert(0, _Watch(name, callback))


class _Watch:
    """Finds one module the usual way and wraps its loader, then removes itself."""

    def __init__(self, name: str, after: Callable[[], None]) -> None:
        self.name = name
        self.after = after

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Defer to the other finders; see importlib.abc.MetaPathFinder."""
        if fullname != self.name:
            return None
        sys.meta_path.remove(self)
        for finder in sys.meta_path:
            spec = finder.find_spec(fullname, path, target) if hasattr(finder, "find_spec") else None
            if spec is not None:
                if spec.loader is not None:
                    _run_after_exec(spec.loader, self.after)
                return spec
        return None


def _run_after_exec(loader: object, callback: Callable[[], None]) -> None:
    """Shadow ``exec_module`` of this one loader instance, so that its type, which other code may check, is kept."""
    execute = loader.exec_module  # type: ignore[attr-defined]

    def exec_module(module: ModuleType) -> None:
        del loader.exec_module  # type: ignore[attr-defined]
        execute(module)
        guarded(callback)()

    loader.exec_module = exec_module  # type: ignore[attr-defined]
