"""Public part of a call: what may be stored and shown. Bodies are the program's own, and kept or not as a whole."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ..credentials import mask_text
from .exchange import Answer, Call

_HEADERS = frozenset(
    {
        *("accept", "content-type", "content-encoding", "content-language", "location", "retry-after"),
        *("retry-after-ms", "x-should-retry", "x-stainless-retry-count"),
        *("anthropic-version", "anthropic-beta", "openai-beta", "openai-model", "openai-version"),
        *("request-id", "x-request-id", "x-amzn-requestid", "x-amzn-errortype"),
    }
)
"""Headers that are kept. All others, which may have secrets, are not."""
_PREFIXES = ("x-ratelimit-", "anthropic-ratelimit-", "x-amzn-bedrock-")


@dataclass(frozen=True, slots=True)
class PublicCall:
    """A call without its secrets."""

    method: str
    url: str
    """Without credentials: those of a user, and of options such as `key=`, are masked."""
    headers: list[tuple[str, str]]


def public_call(call: Call) -> PublicCall:
    """Return what of a call may be stored besides its body."""
    return PublicCall(call.method, mask_text(call.url), public_headers(call.headers))


def public_answer(answer: Answer) -> Answer:
    """Return an answer as it may be stored: fewer headers, and the text of its error without credentials."""
    error = None if answer.error is None else (answer.error[0], mask_text(answer.error[1]))
    headers = public_headers(answer.headers)
    return Answer(answer.status, headers, answer.chunks, answer.times, error, answer.unread)


def public_headers(headers: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    """Return the headers of an allow-list, with names in lower case and credentials in their values masked."""
    lower = ((name.lower(), value) for name, value in headers)
    return [(name, mask_text(value)) for name, value in lower if name in _HEADERS or name.startswith(_PREFIXES)]
