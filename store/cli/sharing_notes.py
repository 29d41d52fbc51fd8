"""Notes on what was changed in a file that is to be shared."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..text import plural
from .output import note

if TYPE_CHECKING:
    from ..formats.sharing import Sharing


def note_sharing(shared: Sharing | None) -> None:
    """Print how many payloads were redacted, and in how many no names were replaced."""
    if shared is None:
        return
    if shared.clean is not None:
        text = f"{plural(shared.clean.changed, 'payload')} redacted"
        if shared.clean.unreadable:
            text += f", {shared.clean.unreadable:,} of them completely: not JSON"
        note(text if shared.clean.changed else f"{text}: none has a value at these paths")
    if shared.no_text:
        are = "are" if shared.no_text != 1 else "is"
        note(f"{plural(shared.no_text, 'payload')} {are} not text: no names were replaced in them")
