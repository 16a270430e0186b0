"""Recognises a secret by its variable's name, by its shape, or as the value of a secret variable of this shell.

Every text that is written to a file, printed or sent is checked here. A secret that the user typed is refused
(`refuse_secrets`). A secret that a program printed is hidden (`hidden`, `hidden_in_log`). No message of this module
contains the secret itself.
"""

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from benchmarks.errors import RequestError

REDACTED = "<redacted>"
SHORTEST_VALUE = 8  # shorter values occur in ordinary text
NO_SECRETS = ("PWD", "OLDPWD")  # PWD also means password, but these variables contain folders

_VARIABLE = re.compile(
    r"TOKEN(_|$)|(?<!MAX_)(?<!MIN_)(?<!NUM_)(?<!BATCHED_)(?<!TRAIN_)(?<!TOTAL_)TOKENS$"  # these count tokens
    r"|SECRET|PASSW|PASSPHRASE|(?<!BY)PASS(_|$)|CREDENTIAL|WEBHOOK|(API|ACCESS|PRIVATE|SSH)_?KEY"
    r"|(^|_)(AUTH|BEARER|COOKIE|JWT|KEY|PAT|PSK|PW|PWD|SAS)(_|$)",
    re.IGNORECASE,
)
# Hugging Face, OpenAI and the like, GitHub, GitLab, Slack (tokens and webhooks), AWS, Google, NVIDIA, Docker,
# Weights & Biases, JSON web tokens.
_SHAPE = re.compile(
    rb"\bhf_[A-Za-z0-9]{20,}|\bsk-[A-Za-z0-9_-]{20,}|\bgh[pousr]_[A-Za-z0-9]{30,}|\bgithub_pat_\w{30,}"
    rb"|\bglpat-[\w-]{16,}|\bx(?:ox[abeprs]|app)-[A-Za-z0-9-]{10,}|\bA[KS]IA[0-9A-Z]{16}\b|\bAIza[\w-]{30,}|\bnvapi-[\w-]{20,}"
    rb"|\bhooks\.slack\.com/services/[\w/]+|\bdckr_pat_[\w-]{20,}"
    rb"|\bwandb_v\d{1,3}_\w{8,}|\beyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}\."
)
# A login before @ in a URL: a name with a password, or only a name. The password may contain / and @, so it extends
# to the last @ of the path. A number after the colon is a port.
_LOGIN = re.compile(
    rb"(?<=://)(?:(?:<redacted>|[^/\s:@\['\"<>])*+:(?!\d{1,5}(?:[/?#,;\s]|$))(?:<redacted>|(?!://)[^\s'\"<>?#])+@"
    rb"|[^/\s'\"<>]+@)",
)

HIDDEN = REDACTED.encode()
# The end of a secret's name, with any prefix (db_, HF_, client-). A tokenizer's tokens are not secrets.
_NAME = (
    rb"(?:password|passwd|[_-]pwd|passcode|secret|credential|signature(?==)|[?&]sig(?==)"
    rb"|(?:db|mysql|smtp|redis|admin|root)[_-]?pass"
    rb"|(?<!bos_)(?<!eos_)(?<!pad_)(?<!unk_)(?<!sep_)(?<!cls_)(?<!mask_)(?<!per_)token"
    rb"|(?:api|access|private|secret|account|signing|encryption)[_-]?key)\d{0,2}"
)
# A secret in the query of a URL, such as ?access_token=..., also in HTML or JSON. Only the value is hidden.
_QUERY = re.compile(
    rb"(?P<before>(?:[?&](?:amp;)?|\\u0026)(?i:[\w.-]{0,40}?"
    + _NAME
    + rb"|sig|key)=)(?!<redacted>|(?:None|null|true|false)\b)[^&#\s'\"<>\\]+"
)
_SIGN = rb"\\{0,4}['\"]?[ \t]{0,8}(?:=>|[:=])[ \t]{0,8}+"
# A value in quotes, which may be escaped. Without a closing quote, the value extends to the end of the line.
_QUOTED = rb"(?:\\{1,4}(?P<%(n)s>['\"]).+?(?:\\{1,4}(?P=%(n)s)|$)|\"(?:\\.|[^\"\\\n])+\"?|'(?:\\.|[^'\\\n])+'?)"
_NOTHING = rb"(?!\\{0,4}['\"]?(?:(?:None|null|true|false)\b|<redacted>))"
_KEY = rb"[A-Z ]{0,30}PRIVATE KEY-----"
# Only the group `before` stays readable. No pattern begins with a repetition, because a line may have megabytes.
_IN_A_LOG = (
    rb"(?P<before>"
    rb"(?i:" + _NAME + _SIGN + rb")" + _NOTHING + rb")(?:" + _QUOTED % {b"n": b"q"} + rb"|[^\s&'\"]+)"
    # These values extend to the end of the line, because they may contain spaces.
    rb"|(?P<before_line>(?i:passphrase|authorization|\bcookie|set-cookie)" + _SIGN + _NOTHING + rb")"
    rb"(?:" + _QUOTED % {b"n": b"p"} + rb"|[^\r\n'\"]+)"
    rb"|(?P<before_word>(?i:--[\w-]{0,30}(?:password|passphrase|secret|token|[_-]key)[ \t]{1,8}+)"
    + _NOTHING
    + rb")(?!-)\S+"
    rb"|(?P<before_login>(?<![\w-])(?:-u[ \t]{0,8}|--(?:proxy-)?user[ =])['\"]?[^\s:'\"/]{1,99}:)"
    rb"(?!<redacted>)[^\s'\"]+"
    rb"|(?P<before_wandb>\bwandb[ .]login\b[^\r\n]{0,60}?\b)[0-9a-f]{40}\b"
    rb"|(?P<before_azure>\bsig=)[A-Za-z0-9%+/]{40,}={0,2}"  # a query without its URL
    rb"|(?P<before_bearer>\b[Bb]earer )(?!tokens?\b|<redacted>)\S+"
    rb"|\bhf_(?=[a-z]{0,40}[A-Z0-9])[A-Za-z0-9]{8,}"
    rb"|-----BEGIN " + _KEY + rb"[\s\S]*?(?:-----END " + _KEY + rb"|\Z)"
)

Known = Mapping[str, str]  # a secret value -> the variable of this shell that has the value


def is_secret_name(name: str) -> bool:
    """Return whether a variable or a key has the name of a secret."""
    return _VARIABLE.search(name) is not None


def shell_secrets(environment: Mapping[str, str] = os.environ, paths: tuple[Path | str, ...] = ()) -> dict[str, str]:
    """Return secret value -> name of the shell's variable, without values that occur in one of `paths`."""
    return {
        value: name
        for name, value in environment.items()
        if len(value) >= SHORTEST_VALUE
        and is_secret_name(name)
        and name.upper() not in NO_SECRETS
        and not any(value in str(path) for path in paths)
    }


def secrets_here() -> Known:
    """Return this shell's secrets, except values in the current folder's path. Call this once for many texts."""
    return shell_secrets(paths=(Path.cwd(),))


def why_secret(text: str, known: Known | None = None) -> str:
    """Return why a text must not be written to a file; empty if it contains no secret."""
    for value, variable in (shell_secrets() if known is None else known).items():
        if value in text:
            return f"the text contains the value of {variable}, whose name marks a secret"
    raw = _raw(text)
    if _SHAPE.search(raw):
        return "the text looks like a token"
    if _QUERY.search(raw):
        return "the text is a URL with a secret in its query"
    return "the text is a URL with a login" if _LOGIN.search(raw) else ""


def refuse_secrets(value: Any, where: str, known: Known | None = None) -> None:
    """Raise RequestError if any text in a value, at any depth, contains a secret."""
    known = secrets_here() if known is None else known
    for place, text in _texts(value, where):
        why = why_secret(text, known)
        if why:
            raise RequestError(
                "a value that looks like a secret must not be written into a run's folder",
                where=place,
                why=f"{why}; remove it, and export it as a variable of the shell that starts the run",
            )


def _texts(value: Any, where: str) -> Iterator[tuple[str, str]]:
    if isinstance(value, str):
        yield where, value
    elif isinstance(value, Mapping):
        for key, inner in value.items():
            yield where, str(key)
            yield from _texts(inner, f"{where} {key}")
    elif isinstance(value, (list, tuple)):
        for inner in value:
            yield from _texts(inner, where)


def hidden(text: str, known: Known | None = None) -> str:
    """Return the text with tokens, logins and the secrets of this shell hidden."""
    return _hidden(_raw(text), known).decode(errors="surrogateescape")


def hidden_in_log(text: bytes, known: Known | None = None) -> bytes:
    """Hide what `hidden` hides, and values after the name of a password or key. A second call changes nothing."""
    text = re.sub(_IN_A_LOG, _hide_match, text, flags=re.MULTILINE)
    end = None if b"-----END " not in text else re.search(rb"-----END " + _KEY, text)
    if end is not None:  # the text begins inside a private key
        text = HIDDEN + text[end.end() :]
    return _hidden(text, known)


def hidden_in_reason(text: str) -> str:
    """Hide secrets in a program's failure message, by their form only, so that a result is the same in any shell."""
    return hidden_in_log(_raw(text), {}).decode(errors="surrogateescape")


def _hidden(text: bytes, known: Known | None) -> bytes:
    for value in shell_secrets() if known is None else known:
        text = text.replace(_raw(value), HIDDEN)
    text = _QUERY.sub(rb"\g<before>" + HIDDEN, _LOGIN.sub(HIDDEN + b"@", text))
    return _SHAPE.sub(HIDDEN, text)


def _hide_match(found: re.Match[bytes]) -> bytes:
    kept = (text for name, text in found.groupdict().items() if name.startswith("before") and text is not None)
    return next(kept, b"") + HIDDEN


def _raw(text: str) -> bytes:
    return text.encode(errors="surrogateescape")
