"""Credentials: they are recognised by their names, and masked in texts, command lines, settings and URLs.

All code that shows or stores a text from outside (command lines, settings, errors, URLs) masks it here. The words of
its name make a value a credential: `--access-key x`, `DB_PASSWORD=x`, `{"jwt": "x"}`, `?token=x`,
`Authorization: Bearer x`; so do the user and password of a URL. A secret without such a name is not recognised.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any
from urllib.parse import urlsplit

MASK = "***"

_WORD = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+")
_NOUNS = (
    *("password", "passwd", "passphrase", "passcode", "pwd", "secret", "token", "credential", "jwt", "bearer", "dsn"),
    *("apikey", "accesskey", "privatekey", "secretkey", "authkey", "connectionstring", "sessionid"),
)
"""A name is secret if one of its words ends in one of these."""
_SHORT = {"pw", "cred", "otp"}
"""The same for words that are too short to be searched at the end of others."""
_PHRASES = tuple(noun for noun in _NOUNS if noun.endswith(("key", "string", "id")))
"""Also matched across words: `api-key`, `API_KEY_PROD`."""
_HEADERS = {"authorization", "cookie"}
_LAST = {"auth", "pass", *_HEADERS}
"""A name is secret if its last word is one of these."""
_NO_PASS = {"compass", "bypass", "trespass", "encompass", "overpass", "underpass", "surpass"}
_FLAGS = {"no", "without", "skip", "ask", "prompt", "disable", "enable", "require", "requires", "allow", "has", "is"}
"""First words of names whose values are yes or no."""
_ABOUT = re.compile(
    "files?|filename|paths?|dir|directory|folder|stdin|env|fd|counts?|limits?|budget|length|len|size|types?|mode|kind|"
    "scheme|method|policy|provider|backend|strategy|url|uri|endpoint|host|port|names?|ttl|expiry|expires|expiration|"
    "timeout|enabled|required|used|usage|rate|price|cost|ids|second|minute|hour|day"
)
"""Last words of names that describe a secret, such as its location or length."""
_COUNTED = re.compile(
    "max|min|num|n|number|total|prompt|completion|input|output|new|context|special|pad|eos|bos|unk|sep|cls|mask|stop|"
    "per|avg|mean|remaining|cached|reasoning"
)
"""Words with which tokens, keys and passes are counted, or part of a text."""
_PLAIN_KEY = re.compile(
    "public|primary|foreign|sort|partition|routing|row|cache|hot|map|group|index|shard|lookup|join|order|dict|object|"
    "composite|natural|unique"
)
_PLAIN_PASS = re.compile("first|second|third|single|two|multi|one|forward|backward|low|high|band|by")
_QUERY_NAMES = {"key", "u", "user", "username", "login", "sig", "signature"}
"""Names of URL options that are secret, or identify a user as the user before the host does."""

_ROUNDS = 4
"""Maximum passes: a mask may reveal that the text next to it is a credential."""
_OPTION = re.compile(r"--?[A-Za-z][\w.-]*")
_VARIABLE = re.compile(r"[\w.\[\]-]+")
_NUMBER = re.compile(r"[\d.,_]+[kKmM]?")
_USER = re.compile(  # a password may have blanks or unescaped characters
    r"""(?<=//)(?!/)(?P<user>[^/@\s:]{0,2000}:[^/\n"']{0,2000}@(?:\S{0,2000}@)?|\S{0,2000}@)(?P<rest>[^\s"'<>]*)"""
)
_QUERY = re.compile(r"(?<=[?&;])(?P<name>[\w.%\[\]-]+)=(?P<value>[^&\s\"'<>]*)")
_NAMED = re.compile(
    r"""(?<![\w?&.-])(?:(?P<option>--?[A-Za-z][\w.-]*)(?:\\*["']\s*,\s*|[ \t]+)"""
    r"""|(?P<name>-{0,2}[A-Za-z_][\w.-]*)\\*["'\])]*\s*(?::=|=>|={1,3}|:(?!//))[ \t]*)"""
)
"""A name and the text between it and its value."""
_VALUE = re.compile(r"""\*{3}|[bBfFrRuU]{0,2}(?:\\+(["']).*?\\+\1|"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')|\S+""", re.S)
_SCHEME = re.compile(r"""\\*["']?(?:(?:basic|bearer|negotiate|token|apikey)\s+|digest\s+)?""", re.I)
_BEARER = re.compile(r"""\b(bearer\s+)[^\s"'\\,]+""", re.I)


def is_secret(name: str, value: object = "") -> bool:
    """Return True if a value is a credential according to its name. A plain number of `tokens` is none."""
    words = [word.lower() for word in _WORD.findall(name)]
    if not words or words[0] in _FLAGS or _ABOUT.fullmatch(words[-1]):
        return False
    counted = any(map(_COUNTED.fullmatch, words))
    if any(map(_is_secret_word, words)):
        token = all("token" in word for word in words if _is_secret_word(word))
        count = words[-1] == "tokens" and isinstance(value, str | int | float) and _NUMBER.fullmatch(str(value))
        return not (token and (counted or count))
    if any(phrase in "".join(words) for phrase in _PHRASES):
        return True
    last = words[-1] if words[-1].endswith("ss") else words[-1].removesuffix("s")
    if last == "key":
        return len(words) > 1 and not counted and not any(map(_PLAIN_KEY.fullmatch, words))
    if last.endswith("pass"):
        return last not in _NO_PASS and not counted and not any(map(_PLAIN_PASS.fullmatch, words))
    return last in _LAST


def _is_secret_word(word: str) -> bool:
    singular = word.removesuffix("s")
    return singular.endswith(_NOUNS) or singular in _SHORT or word.startswith("passw")


def mask_text(text: str) -> str:
    """Return the text without the credentials of URLs, `name=value`, `name: value`, `--name value` and HTTP headers."""
    for _ in range(_ROUNDS):
        masked = _mask_named(_USER.sub(_mask_user, text))
        masked = _QUERY.sub(_mask_option, _BEARER.sub(rf"\1{MASK}", masked))
        if masked == text:
            break
        text = masked
    return text


def _mask_user(found: re.Match[str]) -> str:
    unsure = "?" in found["user"] or "#" in found["user"]  # the password may extend beyond the last @
    return MASK if unsure else f"{MASK}@{found['rest']}"


def _mask_option(found: re.Match[str]) -> str:
    words = [word.lower() for word in _WORD.findall(found["name"])]
    secret = is_secret(found["name"], found["value"]) or words[-1:] == ["signature"] or "".join(words) in _QUERY_NAMES
    return f"{found['name']}={MASK}" if secret else found[0]


def _mask_named(text: str) -> str:
    parts, at = [], 0
    for found in _NAMED.finditer(text):
        name, end = found["option"] or found["name"], found.end()
        if found.start() < at or not is_secret(name):
            continue  # part of a masked value, or harmless
        if name.lower().endswith(tuple(_HEADERS)) and found["name"]:
            begin, end = _header_value(text, end)
        else:
            value = _VALUE.match(text, end)
            if value is None or not is_secret(name, value[0]):
                continue
            begin, end = end, value.end()
        if begin < end:
            parts += [text[at:begin], MASK]
            at = end
    return "".join([*parts, text[at:]])


def _header_value(text: str, at: int) -> tuple[int, int]:
    """Return the start and the end of the credentials in an HTTP header, behind the scheme."""
    found = _SCHEME.match(text, at)
    assert found is not None
    scheme = found[0].lstrip("\\")
    if scheme[:1] in ("'", '"'):
        rest = rf"[^{scheme[0]}\\\r\n]*"
    else:
        rest = r"[^\s\"'\\]+" if scheme.strip() and not scheme.lower().startswith("digest") else r"[^\r\n]*"
    value = re.compile(rest).match(text, found.end())
    return found.end(), found.end() if value is None else value.end()


def mask_json(value: Any) -> Any:
    """Return a JSON value of the same shape without credentials.

    Strings are masked as texts, lists as command lines, and in objects every value under a secret name.
    """
    if isinstance(value, str):
        return mask_text(value)
    if isinstance(value, dict):
        return {key: _blank(key, item) if is_secret(str(key), item) else mask_json(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_item(option, item) for option, item in zip([None, *value], value, strict=False)]
    return value


def _blank(name: str, value: Any) -> Any:
    """Return a value that has a secret name, with each text and number in it masked."""
    if isinstance(value, dict):
        return {key: _blank(name, item) for key, item in value.items()}
    if isinstance(value, list):
        return [_blank(name, item) for item in value]
    if value is None or isinstance(value, bool) or value == "" or not is_secret(name, value):
        return value
    return MASK


def _item(before: Any, item: Any) -> Any:
    if not isinstance(item, str):
        return mask_json(item)
    if is_secret_option(before) and is_secret(before, item):
        return MASK
    name, equals, value = item.partition("=")
    if equals and _VARIABLE.fullmatch(name) and is_secret(name, value):
        return f"{name}={MASK}"  # all of it, with what follows a blank
    return mask_text(item)


def is_secret_option(argument: Any) -> bool:
    """Return True if the next argument of a command line is a credential."""
    return isinstance(argument, str) and _OPTION.fullmatch(argument) is not None and is_secret(argument)


def command_line(arguments: list[str]) -> list[str]:
    """Return the arguments of a command without credentials."""
    masked: list[str] = mask_json(arguments)
    return masked


def find_credentials(value: Any, path: str = "") -> Iterator[str]:
    """Yield the paths, such as `config.url` or `command[3]`, at which `mask_json` would mask something."""
    yield from _differing(value, mask_json(value), path)


def _differing(value: Any, masked: Any, path: str) -> Iterator[str]:
    if isinstance(value, dict):
        for key, item in value.items():
            yield from _differing(item, masked[key], f"{path}.{key}" if path else str(key))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _differing(item, masked[index], f"{path}[{index}]")
    elif value != masked:
        yield path


def mask_known(text: str, secrets: Iterable[str | None]) -> str:
    """Return the text without these secrets, except within other words."""
    for secret in filter(None, secrets):
        text = re.sub(rf"(?<!\w){re.escape(secret)}(?!\w)", MASK, text)
    return text


def without_credentials(url: str) -> str:
    """Return the URL without user, password and options, even if these are not escaped."""
    scheme, slashes, rest = url.partition("://")
    if not slashes:
        return url.rpartition("@")[2]
    try:
        parts = urlsplit(url)
        if ambiguous(url):
            return f"{scheme}://..."
        hosts = parts.netloc.rpartition("@")[2]
        whole = all(map(_whole, hosts.split(","))) and "@" not in parts.path
        socket = not hosts and ("@" in parts.netloc or not parts.netloc)
        rest = hosts + parts.path if whole or socket else rest.rpartition("@")[2]
    except ValueError:  # without an @, the host may be missing and the port may be a password
        rest = rest.rpartition("@")[2] if "@" in rest else "..."
    return f"{scheme}://" + re.split(r"[?#]", rest, maxsplit=1)[0]


def ambiguous(url: str) -> bool:
    """Return True if a password may extend beyond the apparent start of the host."""
    place, _, query = url.partition("://")[2].partition("?")
    host, _, path = place.partition("/")
    return "#" in url or "@" in query or ("@" in host and "@" in path)


def _whole(host: str) -> bool:
    """Return True for a host, with a port if there is a colon. Raises `ValueError` for a port that is no number."""
    parts = urlsplit("//" + host)
    return bool(parts.hostname) and (parts.port is not None or ":" not in host.rpartition("]")[2])
