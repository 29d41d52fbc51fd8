"""Errors about URLs of brokers. They show no credentials."""

from __future__ import annotations

from ..credentials import without_credentials

ESCAPES = "a port is a number, and / @ : # ? % in a password are written as %2F %40 %3A ..."


class URLFault(ValueError):
    """Fault of a URL. Its text repeats no part of the URL in which a password may be."""


def fault_of(error: Exception) -> str:
    """Return what is wrong with a URL. The texts of other errors may repeat parts of it, and so of a password."""
    return str(error) if isinstance(error, URLFault) else ESCAPES


def not_a_url(url: str, kind: str, fault: str) -> ValueError:
    """Return the error for a text that is not a URL of this kind, such as "a Redis URL"."""
    return ValueError(f"{without_credentials(url)!r} is not {kind} ({fault})")
