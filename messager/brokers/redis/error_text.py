"""Text of a Redis error: one short line without credentials, with the remedy if one is known."""

from __future__ import annotations

import re
import socket
import ssl
from collections.abc import Iterable, Sequence

from redis.exceptions import AuthenticationError, RedisError
from redis.exceptions import TimeoutError as RedisTimeout

from ...credentials import mask_known
from ..tls_errors import certificate_error_text

_ASKS_FOR_CERTIFICATE = ("CERTIFICATE_REQUIRED", "HANDSHAKE_FAILURE")
_OWN_CERTIFICATE = "give one with ?ssl_certfile=FILE&ssl_keyfile=FILE"
_WITHOUT_TLS = "write redis where the URL says rediss"
_NO_TLS = ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "UNKNOWN_PROTOCOL", "HTTP_REQUEST")


def error_text(error: BaseException, secrets: Iterable[str | None] = (), *, tls: bool = False) -> str:
    """Return the text of an error without these secrets: a server without AUTH repeats what it was sent.

    `tls` is True if the error was raised by the handshake of a TLS connection.
    """
    if isinstance(error, TimeoutError | RedisTimeout):
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
    """Return the text for a failed TLS handshake; None for any other error."""
    cause = _cause(error)
    if not isinstance(cause, ssl.SSLError):
        return None
    if isinstance(cause, ssl.SSLCertVerificationError):
        any_name = ", or take any with ?ssl_check_hostname=no"
        return certificate_error_text(cause, authority_option="ssl_ca_certs", any_name=any_name)
    code = cause.reason or str(cause)
    if code.endswith(_ASKS_FOR_CERTIFICATE):
        return f"the server asks for a certificate; {_OWN_CERTIFICATE}"
    if code in _NO_TLS:
        return f"the server does not speak TLS there; {_WITHOUT_TLS}"
    return "TLS failed: " + code.replace("_", " ").lower()


def _cause(error: BaseException) -> BaseException:
    """Return the error that redis-py wrapped, and none behind it, which may be an error of the caller."""
    while isinstance(error, RedisError):
        wrapped = error.__cause__ if error.__suppress_context__ else error.__context__
        if wrapped is None:
            break
        error = wrapped
    return error


def acl_remedy(error: Exception, command: str, channels: Sequence[str] = ()) -> str:
    """Return how to grant the right that a user lacks; empty if the command was refused for another reason.

    `channels` are the channels of the command, if they are known.
    """
    text = str(error).removeprefix("NOPERM ")
    if "permission" not in text.lower():
        return ""
    if "channel" in text.lower():
        rules = [f"'&{channel}'" for channel in channels] or ["'&CHANNEL'"]
    elif " key" in text.lower():
        rules = ["'~KEY'"]
    else:
        rules = ["+" + command.lower()]
    return f"; grant it with ACL SETUSER USER {' '.join(rules)}"
