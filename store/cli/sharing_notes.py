"""Notes on what was changed in a file that is to be shared."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..text import plural
from .output import note

if TYPE_CHECKING:
    from ..formats.sharing import Sharing


def note_sharing(shared: Sharing | None) -> None:
    """Print how many payloads were redacted, in how many no names were replaced, and what to read before sharing."""
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
    kept = "what is not at these paths, and the reasons of gaps"
    if shared.pseudonymise:
        kept = (
            "names in texts that are not spelled as ids, name and tags of the experiment, times, and who talks to whom"
        )
    note(f"read the file before you share it: {kept} remain (docs/privacy.md)")
