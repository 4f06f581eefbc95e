"""Mask values that look like secrets before command lines, configurations and messages are stored.

Reports are shared. A value that is masked here is masked in every file derived from it. The name of a flag stays
visible; only its value is masked.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

__all__ = ["MASK", "mask_arguments", "mask_config", "mask_text"]

MASK = "***"

_WORDS = (
    *("token", "secret", "password", "passwd", "passphrase", "passcode", "pwd", "pw", "credential", "credentials"),
    *("auth", "authorization", "authtoken", "bearer", "cookie", "apikey", "accesskey", "secretkey", "privatekey"),
    *("key", "pat", "dsn", "pass", "jwt", "signature", "sas"),
)
"""A name denotes a secret if one of its parts (``api-key``, ``db.password``, ``hfToken``) is one of these words, or its
plural."""

_NO_SECRETS = frozenset(
    {
        *("num", "max", "min", "n", "size", "len", "length", "count", "per", "batch", "special", "vocab", "pad", "eos"),
        *("bos", "unk", "sep", "cls", "mask", "steps", "seq", "position", "dropout", "head", "dim", "total", "heads"),
        *("query", "value", "sort", "primary", "public", "metric", "monitor", "column", "image", "label", "text"),
        *("input", "output", "target", "train", "new", "drop", "tokens"),
    }
)
"""Next to one of these, ``token`` and ``key`` are words of machine learning: ``--max-tokens``, ``image_key``."""
_AMBIGUOUS = frozenset({"token", "tokens", "key", "keys", "pass", "passes", "pat", "signature"})

_NAME = r"(?<!\w)[A-Za-z_][\w.\-/]{0,100}"
"""Bounded in length and anchored at the start of a word, so that a long text without any value is scanned once."""
_ASSIGNED = re.compile(rf"^(?P<head>(?:-{{1,2}}|[+~]{{0,2}})(?P<name>{_NAME}(?:@{_NAME})?)[=:])(?P<value>.+)$", re.S)
_FLAG = re.compile(rf"^-{{1,2}}(?P<name>{_NAME})$")
_IN_TEXT = re.compile(rf"(?P<name>{_NAME})[\"']?\s?[=:]\s?[\"']?"), re.compile(r"[^\s\"',;&{}\[\]()]+")
_AS_FLAG_IN_TEXT = re.compile(rf"--(?P<name>{_NAME})\s{{1,8}}"), re.compile(r"[^\s\"',;\-][^\s\"',;]*")
"""A name, and the value behind it."""

_SHAPES = re.compile(
    r"(?P<url>(?<=://)[^\s/@:]{0,256}:[^\s@]{1,256}(?=@))"  # user:password of an address
    r"|(?<=https://)[^\s/@:]{1,256}(?=@)|(?<=http://)[^\s/@:]{1,256}(?=@)"  # a token in the place of a user
    r"|(?<=://)[\w\-.]{20,256}(?=@)"
    r"|(?<=hooks\.slack\.com/services/)[\w/]+|(?<=/api/webhooks/)[\w/\-]+|(?<=/webhookb2/)[\w/@\-]+"  # who may post
    r"|(?P<bearer>(?<=\bBearer )[\w\-.~+/=]{8,}|(?<=\bbearer )[\w\-.~+/=]{8,}|(?<=\bBasic )[\w+/=]{8,})"
    r"|\bhf_[A-Za-z0-9]{16,}"  # Hugging Face
    r"|\bgh[pousr]_[A-Za-z0-9]{16,}|\bgithub_pat_\w{16,}"  # GitHub
    r"|\bglpat-[\w\-]{16,}"  # GitLab
    r"|\bsk-[\w\-]{16,}"  # OpenAI, Anthropic
    r"|\bxox[abprs]-[\w\-]{8,}"  # Slack
    r"|\b(?:AKIA|ASIA)[A-Z0-9]{16}\b"  # AWS
    r"|\bAIza[\w\-]{30,}"  # Google
    r"|\bnvapi-[\w\-]{16,}|\bdapi[0-9a-f]{32}\b|\bnpm_[A-Za-z0-9]{30,}|\bpypi-[\w\-]{16,}"
    r"|\beyJ[\w\-]{8,}\.[\w\-]{8,}\.[\w\-]*"  # a JSON web token
    r"|-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)",
    re.S,
)
"""Values that are recognised as secrets by their form, independent of their name."""
_QUERY = re.compile(r"(?P<head>[?&](?P<name>[\w.\-]+)=)(?P<value>[^&\s#]+)")


def mask_arguments(words: Sequence[str]) -> list[str]:
    """Mask values of flags and of ``key=value`` words whose names denote secrets, and values that look like secrets.

    Args:
        words: a command line, one item per word.

    Returns:
        As many words; a masked value is :data:`MASK`.
    """
    kept, next_is_secret = [], False
    for word in words:
        flag, assigned = _FLAG.match(word), _ASSIGNED.match(word)
        if next_is_secret and not (flag or word == "--"):
            kept.append(MASK)
            next_is_secret = False
            continue
        next_is_secret = flag is not None and _tells_of_secret(flag["name"])
        if assigned is not None and "://" not in assigned["head"] and _tells_of_secret(assigned["name"]):
            kept.append(assigned["head"] + MASK)
        else:
            kept.append(mask_text(word))
    return kept


def mask_config(plain: Any, *, secret: bool = False) -> Any:
    """Mask values below keys whose names denote secrets, at any depth; other values as :func:`mask_text` does."""
    if isinstance(plain, dict):
        return {key: mask_config(value, secret=secret or _tells_of_secret(str(key))) for key, value in plain.items()}
    if isinstance(plain, (list, tuple)):
        return [mask_config(item, secret=secret) for item in plain]
    if plain is None or isinstance(plain, (bool, int, float)):
        return plain
    return MASK if secret and plain else mask_text(str(plain))


def mask_text(text: str) -> str:
    """Mask secrets in running text, for instance in the message of an exception."""
    text = _mask_shapes(text)
    for names, values in (_IN_TEXT, _AS_FLAG_IN_TEXT):
        text = _mask_named(names, values, text)
    return text


def _mask_named(names: re.Pattern[str], values: re.Pattern[str], text: str) -> str:
    """Mask the values behind names that denote secrets. The value behind another name may contain such a name
    itself."""
    kept, done, at = [], 0, 0
    while name := names.search(text, at):
        at = name.end()
        if _tells_of_secret(name["name"]) and (value := values.match(text, at)) is not None:
            kept += [text[done:at], MASK]
            done = at = value.end()
    return "".join([*kept, text[done:]])


def _mask_shapes(text: str) -> str:
    def masked(match: re.Match[str]) -> str:
        if match["url"]:
            return f"{match['url'].partition(':')[0]}:{MASK}"
        return MASK

    return _QUERY.sub(_masked_in_query, _SHAPES.sub(masked, text))


def _masked_in_query(match: re.Match[str]) -> str:
    secret = _tells_of_secret(match["name"]) or match["name"] == "sig"  # of a shared access signature
    return match["head"] + MASK if secret else match[0]


def _tells_of_secret(name: str) -> bool:
    spaced = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", name)  # camelCase
    parts = [part.lower() for part in re.split(r"[^A-Za-z]+", spaced) if part]
    found = {part for part in parts if part in _WORDS or (part.endswith("s") and part[:-1] in _WORDS)}
    found |= {part for part in parts if part.endswith(("token", "password", "passwd", "secret", "apikey"))}
    if not found:
        return False
    return not (found <= _AMBIGUOUS and any(part in _NO_SECRETS for part in parts))
