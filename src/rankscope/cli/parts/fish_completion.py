"""Completion for fish, which shtab does not write: a line for each verb, flag and choice of the parser."""

from __future__ import annotations

import argparse
from collections.abc import Iterator

__all__ = ["fish_script"]

_AT_START = "not __rankscope_verb"
_HEAD = r"""# rankscope completion fish | source
function __rankscope_verb --description 'the verb on the command line'
    set -l words (commandline -opc)
    test (count $words) -gt 1; or return 1
    test (count $argv) -eq 0; and return 0
    test "$words[2]" = "$argv[1]"
end

complete -c rankscope -e"""


def fish_script(parser: argparse.ArgumentParser) -> str:
    """Return the script. Files are completed where a flag or argument takes a path or any text."""
    (verbs,) = (action for action in parser._actions if isinstance(action, argparse._SubParsersAction))  # noqa: SLF001
    said = {choice.dest: choice.help or "" for choice in verbs._choices_actions}  # noqa: SLF001
    lines = [_HEAD, *_flags(parser, _AT_START)]
    for name, verb in verbs.choices.items():
        lines.append(f"complete -c rankscope -f -n {_quoted(_AT_START)} -a {name} -d {_quoted(said.get(name, ''))}")
        lines += _flags(verb, f"__rankscope_verb {name}")
    return "\n".join(lines)


def _flags(parser: argparse.ArgumentParser, when: str) -> Iterator[str]:
    for action in parser._actions:  # noqa: SLF001 - argparse has no public list of its arguments
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001 - as above
            continue
        words = [f"complete -c rankscope -n {_quoted(when)}"]
        for flag in action.option_strings:
            kind = "-l" if flag.startswith("--") else "-s" if len(flag) == 2 else "-o"
            words.append(f"{kind} {flag.lstrip('-')}")
        choices = " ".join(str(choice) for choice in action.choices or ())
        if choices:
            words.append(f"-f -a {_quoted(choices)}")
        if action.option_strings and action.nargs != 0:
            words.append("-x" if choices else "-r")
        if not action.option_strings and not choices:
            continue  # files, which fish completes by itself
        if action.help and action.help != argparse.SUPPRESS:
            words.append(f"-d {_quoted(_line(parser, action))}")
        yield " ".join(words)


def _line(parser: argparse.ArgumentParser, action: argparse.Action) -> str:
    """Return the first sentence or line of a flag's help, with its default filled in."""
    try:
        text = parser._get_formatter()._expand_help(action)  # noqa: SLF001 - no public name
    except (ValueError, KeyError, TypeError):
        text = action.help or ""
    return " ".join(text.split()).partition("; ")[0][:100]


def _quoted(text: str) -> str:
    r"""Quote for fish, in which only \\ and \' are special within single quotes."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
