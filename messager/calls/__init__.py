"""Calls to models: the HTTP clients of a process, seen, recorded, and served from a recording."""

from .exchange import Answer, Call, CallRefused, Exchange
from .installing import install

__all__ = ["Answer", "Call", "CallRefused", "Exchange", "install"]
