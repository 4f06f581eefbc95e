"""Extract the text of the first screen of the page: the verdict's box, and the table of actions."""

from __future__ import annotations

from html.parser import HTMLParser

__all__ = ["first_screen"]

_LINES = frozenset({"p", "h1", "h2", "h3", "li", "tr", "dl", "caption", "aside"})
"""Elements that begin a line."""
_CELLS = frozenset({"td", "th", "dd", "span", "a", "small"})
_SILENT = frozenset({"svg", "script", "style", "button", "caption", "label"})
_VOID = frozenset({"meta", "link", "input", "br", "rect"})


class _Text(HTMLParser):
    """Extracts the text of the sections with these ids."""

    def __init__(self, page: str, ids: tuple[str, ...]) -> None:
        super().__init__(convert_charrefs=True)
        self.lines: list[str] = []
        self._ids = ids
        self._open: list[tuple[str, bool]] = []  # element, and whether its text is wanted
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in _VOID:
            return
        known = dict(attrs)
        inside = self._open[-1][1] if self._open else False
        hidden = tag in _SILENT or known.get("aria-hidden") == "true"
        self._open.append((tag, (inside or known.get("id") in self._ids) and not hidden))
        if inside and tag in _LINES:
            self.lines.append("- " if tag == "li" else "")

    def handle_endtag(self, tag: str) -> None:
        if tag in _VOID or not any(known == tag for known, _ in self._open):
            return
        while self._open.pop()[0] != tag:
            pass

    def handle_data(self, data: str) -> None:
        if not self._open or not self._open[-1][1] or not data.strip():
            return
        if not self.lines:
            self.lines.append("")
        cell = self._open[-1][0] in {"td", "th"} and self.lines[-1].strip()
        self.lines[-1] += (" | " if cell else " ") + " ".join(data.split())


def first_screen(page: str) -> str:
    """Return the lines of the verdict's box, then those of the table of what to do."""
    found = _Text(page, ("verdict", "gains")).lines
    return "\n".join(" ".join(line.split()) for line in found if line.strip(" -"))
