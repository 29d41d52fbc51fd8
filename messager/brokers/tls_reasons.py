"""Why a server's certificate was not accepted, in a few words, with what to do about it."""

from __future__ import annotations

import ssl

_UNKNOWN_AUTHORITY = (18, 19, 20, 21)
_OTHER_NAME = (62, 63, 64)
"""OpenSSL's X509_V_ERR codes: an authority that is not trusted; a name or address that the certificate is not for."""


def not_accepted(error: ssl.SSLCertVerificationError, *, authority_option: str, any_name: str = "") -> str:
    """What is wrong with it. `authority_option` is the broker's URL option for the file of an authority,
    `any_name` how to do without the right name, where that can be done."""
    text = "the server's certificate is not accepted: " + error.verify_message.rstrip(".")
    if error.verify_code in _UNKNOWN_AUTHORITY:
        return text + f"; name the file of the authority that signed it with ?{authority_option}=FILE"
    if error.verify_code in _OTHER_NAME:
        return text + "; give a host that it is for" + any_name
    return text
