"""Numbers that the tables hold for kinds, flags and names. This module does not load SQLAlchemy."""

KINDS = ("sent", "received", "blocked", "failed", "gap", "mark", "asked", "answered")
"""event.kind is the position in this list, from 1."""

CHANNEL, AGENT, MESSAGER = 0, 1, 2
"""name.what"""

FROM_DERIVED, TO_DERIVED, NO_TEXT, REDACTED = 1, 2, 4, 8
"""Bits of event.flags: the sender id, or the recipient id, is derived; the payload is not text; the event is
redacted."""

SEQ_BITS = 40
"""event.id = recorder.id << SEQ_BITS | seq"""
SEQ_MASK = (1 << SEQ_BITS) - 1
"""event.id & SEQ_MASK = seq"""
