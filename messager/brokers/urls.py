"""What the URLs of all brokers have in common: how one is shown, and what is said of one that cannot be used."""

from __future__ import annotations

from ..credentials import without_credentials

ESCAPES = "a port is a number, and / @ : # ? % in a password are written as %2F %40 %3A ..."


class URLFault(ValueError):
    """What is wrong with a URL, in words that repeat no part of it in which a password may be."""


def fault_of(error: Exception) -> str:
    """What is wrong with a URL. Words that are not ours may repeat parts of it, and so of a password."""
    return str(error) if isinstance(error, URLFault) else ESCAPES


def not_a_url(url: str, kind: str, fault: str) -> ValueError:
    """The error for what is no URL of this kind, such as "a Redis URL". It shows no credentials."""
    return ValueError(f"{without_credentials(url)!r} is not {kind} ({fault})")
