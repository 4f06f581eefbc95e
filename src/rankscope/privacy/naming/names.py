"""Names of events: a public name is kept, and any other becomes a token that the analysis classifies equally."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from rankscope.privacy.naming.meaning import alike, meaning
from rankscope.privacy.naming.public_names import (
    AFTER,
    CALL,
    COPIES,
    CPP_ROOTS,
    DYNAMO,
    EXACT,
    LIBRARY_ROOTS,
    OPERATOR_NAMESPACES,
    OPTIMIZERS,
    OVERHEAD,
    is_library_kernel,
    known_words,
    of_library,
)
from rankscope.privacy.naming.tokens import Tokens
from rankscope.records.rank import OWN_STEP_MARK
from rankscope.trace.columns import Category
from rankscope.trace.kineto.events import category_code
from rankscope.trace.libraries import OURS

__all__ = ["Names", "own_words"]

_LONGEST = 1 << 14
"""Longer names are truncated by the reader; they become one token."""
_UNNAMED = re.compile(r"\(anonymous namespace\)|<unnamed>|`anonymous namespace'")
_STAND_IN = "\x01"
_IDENTIFIER = r"[A-Za-z_~\x01][\w\x01]*(?:::~?[A-Za-z_\x01][\w\x01]*)*"
_PART = re.compile(
    rf"(?P<name>(?:::)?{_IDENTIFIER})|(?P<number>\d+(?:[uU]?[lL]{{0,2}}|[fF])(?!\w))"
    r"|(?P<sign>[\s<>,()*&{}\[\]#+\-!=|^.:]|'lambda\d*')",
    re.ASCII,
)
_PREFIXES = "|".join(row.prefix for row in OURS if row.prefix)
_CALL_OF_BACKEND = re.compile(rf"(?:{_PREFIXES})::?(?P<kind>\w+)(?: \d{{1,9}}(?:->|<-)\d{{1,9}})?\Z", re.ASCII)
_NUMBERED = re.compile(
    rf"(?:ProfilerStep#|{re.escape(OWN_STEP_MARK)})\d{{1,18}}\Z|Torch-Compiled Region: \d+/\d+\Z", re.ASCII
)
_FSDP = re.compile(
    r"(?P<head>FSDP::(?:all_gather|all_gather_copy_out|backward_prefetch|cast_forward_inputs|inputs_to_device|"
    r"post_backward_accumulate|post_backward_reduce|post_backward_all_reduce|post_backward_reshard|"
    r"post_backward_rs_wait|post_forward|pre_backward|pre_forward|root_post_backward_callback|root_pre_forward))"
    r"(?:(?P<open> \(| for )(?P<module>[^()]{0,400})(?P<close>\)?))?\Z"
)
_OPTIMIZER = re.compile(r"Optimizer\.(?P<what>step|zero_grad)#(?P<class>.{1,400})\.(?P=what)\Z", re.S)
_COMPILED = re.compile(r"## Call CompiledFxGraph (?P<hash>\w{1,200}) ##\Z", re.ASCII)
_DATA = re.compile(r"(?P<phase>[\w.<>]{1,120})_data: (?:[^\n]{0,400}, )?compile_id=(?P<id>[\d/_ \-]{1,20})\Z", re.ASCII)
_TIMED = " (dynamo_timed)"
_EVALUATED = "autograd::engine::evaluate_function: "
_AUTOGRAD = re.compile(r"\w{1,80}Backward\d{1,3}\Z", re.ASCII)
_OPERATOR = re.compile(r"(?P<space>\w{1,40})::(?P<name>\w{1,100})(?:\.\w{1,40})?\Z", re.ASCII)
_TOKEN = re.compile(r"own_[0-9a-f]{12}")


@dataclass(slots=True)
class Names:
    """Caches the result for each name.

    Args:
        tokens: of the owner's key.
        kept: the user's own names that may be read.
    """

    tokens: Tokens
    kept: frozenset[str] = frozenset()
    _known: dict[tuple[int, str], str] = field(default_factory=dict)

    def judged(self, category: str | None, name: object) -> str:
        """Return the replacement for the name of an event of Kineto's class ``category``."""
        text = name if isinstance(name, str) else "" if name is None else str(name)[:200]
        code = category_code(category) if category else int(Category.OTHER)
        known = self._known.get((code, text))
        if known is None:
            known = self._known[code, text] = self._judge(code, text)
        return known

    def own(self, text: str) -> str:
        """Return a token for the user's own name."""
        return self.tokens.token("own", text)

    def _judge(self, code: int, name: str) -> str:
        if not name or name in self.kept:
            return name
        clean = self._public(code, name) if len(name) <= _LONGEST and name.isascii() else None
        if clean is not None and (clean == name or meaning(clean, code) == meaning(name, code)):
            return clean
        return alike(name, self.own(name), code)

    def _public(self, code: int, name: str) -> str | None:
        """Return the name with the user's own parts as tokens; None if all of it is the user's own."""
        if code in (Category.CUDA_RUNTIME, Category.CUDA_DRIVER):
            return name if CALL.match(name) or name in OVERHEAD else None
        if code in (Category.GPU_MEMCPY, Category.GPU_MEMSET):
            return name if COPIES.match(name) else None
        if code in (Category.OVERHEAD, Category.CUDA_SYNC):
            return name if name in OVERHEAD else None
        if code == Category.KERNEL:
            return name if COPIES.match(name) else self._kernel(name)
        return self._host(name)

    def _host(self, name: str) -> str | None:
        if name in EXACT or _NUMBERED.match(name) or name in OVERHEAD:
            return name
        if name.removesuffix(_TIMED) in DYNAMO:
            return name
        if name.startswith(_EVALUATED):
            inner = self._host(name[len(_EVALUATED) :])
            return _EVALUATED + (self.own(name[len(_EVALUATED) :]) if inner is None else inner)
        if (call := _CALL_OF_BACKEND.match(name)) is not None:
            return name if known_words(call["kind"]) else None
        if (module := _FSDP.match(name)) is not None:
            if module["open"] is None:
                return name
            return module["head"] + module["open"] + self.path_of_module(module["module"]) + module["close"]
        if (optimizer := _OPTIMIZER.match(name)) is not None:
            known = optimizer["class"] in OPTIMIZERS
            return (
                name if known else f"Optimizer.{optimizer['what']}#{self.own(optimizer['class'])}.{optimizer['what']}"
            )
        if (graph := _COMPILED.match(name)) is not None:
            return f"## Call CompiledFxGraph {self.own(graph['hash'])} ##"
        if (data := _DATA.match(name)) is not None and data["phase"] in DYNAMO:
            return f"{data['phase']}_data: compile_id={data['id']}"
        if _AUTOGRAD.match(name):
            return name if known_words(name) else None
        if name.startswith("triton_"):
            return name if is_library_kernel(name) else None
        if (operator := _OPERATOR.match(name)) is not None and operator["space"] in OPERATOR_NAMESPACES:
            if known_words(operator["name"]):
                return name
            return f"{operator['space']}::{self.own(name)}"
        return None

    def path_of_module(self, path: str) -> str:
        """Convert ``layers.3.mlp`` to a token for each word; numbers are kept, and with them the order of layers."""
        return ".".join(part if part.isdecimal() or not part else self.own(part) for part in path.split("."))

    def _kernel(self, name: str) -> str | None:
        """Redact a kernel of a public library: the user's own parts, such as template arguments, become tokens."""
        if (call := _CALL_OF_BACKEND.match(name)) is not None and known_words(call["kind"]):
            return name
        text = _UNNAMED.sub(_STAND_IN, name)
        parts: list[str] = []
        place, depth = 0, 0
        while place < len(text):
            match = _PART.match(text, place)
            if match is None:
                return None
            place, word = match.end(), match["name"]
            if word is None:
                depth += (match[0] in "<({[") - (match[0] in ">)}]")
                parts.append(match[0])
            elif self._is_public(word):
                parts.append(word)
            elif depth == 0:
                return None  # the kernel's name is private, and so are the numbers after it
            else:
                begin = match.start() + (2 if word.startswith("::") else 0)
                place = _end_of_arguments(text, place)
                parts += [text[match.start() : begin], self.own(text[begin:place])]
        return "".join(parts).replace(_STAND_IN, "(anonymous namespace)")

    def _is_public(self, word: str) -> bool:
        if word.startswith("::"):  # continues after template arguments
            return all(AFTER.match(part) for part in word[2:].split("::"))
        root, *inner = word.split("::")
        if inner and (root in CPP_ROOTS or (root in LIBRARY_ROOTS and of_library(inner))):
            return True
        if root == _STAND_IN:
            return len(inner) == 1 and is_library_kernel(inner[0])
        return is_library_kernel(root) and all(AFTER.match(part) for part in inner)


def _end_of_arguments(text: str, place: int) -> int:
    """Return where the template arguments that begin here end; ``place`` if there are none."""
    if text[place : place + 1] != "<":
        return place
    depth = 0
    for at in range(place, len(text)):
        depth += (text[at] == "<") - (text[at] == ">" and text[at - 1] != "-")
        if not depth:
            return at + 1
    return len(text)


def own_words(text: str) -> list[str]:
    """Return the tokens in a text of a copy."""
    return _TOKEN.findall(text)
