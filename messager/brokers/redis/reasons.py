"""What went wrong with Redis: in a few words on one line, without a password, and with what to do about it."""

from __future__ import annotations

import re
import socket
import ssl
from collections.abc import Iterable, Sequence

from redis.exceptions import AuthenticationError, RedisError
from redis.exceptions import TimeoutError as LateConnection

from ...credentials import mask_known
from ..tls_reasons import not_accepted

_ASKS_FOR_CERTIFICATE = ("CERTIFICATE_REQUIRED", "HANDSHAKE_FAILURE")
_OWN_CERTIFICATE = "give one with ?ssl_certfile=FILE&ssl_keyfile=FILE"
_WITHOUT_TLS = "write redis where the URL says rediss"
_NO_TLS = ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "UNKNOWN_PROTOCOL", "HTTP_REQUEST")


def reason_of(error: BaseException, secrets: Iterable[str | None] = (), *, tls: bool = False) -> str:
    """An error in a few words, without the secrets: a server that knows no AUTH repeats what it was sent.

    `tls` says that it happened while a connection through TLS was made.
    """
    if isinstance(error, TimeoutError | LateConnection):
        return "no answer in time" + (f"; if it does not speak TLS there, {_WITHOUT_TLS}" if tls else "")
    if tls and isinstance(_cause(error), ConnectionResetError):
        return f"the server ended the TLS handshake; if it asks for a certificate, {_OWN_CERTIFICATE}"
    if isinstance(_cause(error), ConnectionRefusedError):
        return "nobody listens there (is Redis running, and is that its port?)"
    if isinstance(_cause(error), socket.gaierror):
        return "there is no such host"
    text = _tls_reason(error) or " ".join(str(error).split()).rstrip(".") or type(error).__name__
    if text.startswith(("Protocol error", "Error UNKNOWN while")):
        return "what answers there is no Redis"
    text = re.split(r",? with args beginning with", text, maxsplit=1)[0]
    text = mask_known(text, secrets)
    if isinstance(error, AuthenticationError) or text.startswith("NOAUTH"):
        text += "; give the right user and password, as in redis://USER:PASSWORD@HOST"
    if text.endswith("cluster support disabled"):
        text += "; write redis where the URL says redis+cluster"
    return text


def _tls_reason(error: BaseException) -> str | None:
    """What a failed TLS handshake says; None where the error is another one."""
    cause = _cause(error)
    if not isinstance(cause, ssl.SSLError):
        return None
    if isinstance(cause, ssl.SSLCertVerificationError):
        any_name = ", or take any with ?ssl_check_hostname=no"
        return not_accepted(cause, authority_option="ssl_ca_certs", any_name=any_name)
    what = cause.reason or str(cause)
    if what.endswith(_ASKS_FOR_CERTIFICATE):
        return f"the server asks for a certificate; {_OWN_CERTIFICATE}"
    if what in _NO_TLS:
        return f"the server does not speak TLS there; {_WITHOUT_TLS}"
    return "TLS failed: " + what.replace("_", " ").lower()


def _cause(error: BaseException) -> BaseException:
    """What redis-py had before it made an error of its own of it; no further, for there the caller's own may be."""
    while isinstance(error, RedisError) and not error.__suppress_context__ and error.__context__ is not None:
        error = error.__context__
    return error


def missing_right(error: Exception, command: str, channels: Sequence[str] = ()) -> str:
    """What an ACL user lacks whom Redis refused a command, and how to grant it; nothing for other refusals.

    `channels` are those of the command, where they are known.
    """
    text = str(error).removeprefix("NOPERM ")
    if "permission" not in text.lower():
        return ""
    if "channel" in text.lower():
        rules = [f"'&{channel}'" for channel in channels] or ["'&CHANNEL'"]
    else:
        rules = ["+" + command.lower()]
    return f"; grant it with ACL SETUSER USER {' '.join(rules)}"
