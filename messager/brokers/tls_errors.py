"""Text of the error for a server's certificate that was not accepted, with the remedy."""

from __future__ import annotations

import ssl

_UNKNOWN_AUTHORITY = (18, 19, 20, 21)
"""X509_V_ERR codes of OpenSSL for an authority that is not trusted."""
_OTHER_NAME = (62, 63, 64)
"""X509_V_ERR codes for a name or an address that the certificate is not for."""


def certificate_error_text(error: ssl.SSLCertVerificationError, *, authority_option: str, any_name: str = "") -> str:
    """Return the text of the error.

    `authority_option` is the URL option of the broker for the file of an authority. `any_name` says how to accept any
    name, if the broker has an option for that.
    """
    text = "the server's certificate is not accepted: " + error.verify_message.rstrip(".")
    if error.verify_code in _UNKNOWN_AUTHORITY:
        return text + f"; name the file of the authority that signed it with ?{authority_option}=FILE"
    if error.verify_code in _OTHER_NAME:
        return text + "; give a host that it is for" + any_name
    return text
