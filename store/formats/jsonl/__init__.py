"""JSON Lines: an optional header, then one event per line, in replay order; gzip if the name ends in .gz.

The header is an object without `ts`: `{"format": "messager/1", "name", "tags", "meta", "recorders"}`, and `parent` in a
fork.

An event has `ts` (integer, ns UTC), `kind`, `channel`, `from_id`, `to_id` and `payload`: the exact text as a string,
or `payload_base64` if the bytes are not UTF-8; likewise `channel_base64`. Import also accepts an object, an array,
a number, true, false or null as `payload`, and encodes it as a Messager does. Optional fields: `recorder` (its
ordinal, default 1), `derived`, `label` and `cause` (the label of an earlier line), `redacted` (true if the payload was
erased), `messager`, and the attributes of an event by their names (`messager_store.log.attributes`).

Events of equal `ts` keep the order of their lines within a recorder. Import assigns new sequence numbers in line
order, without holes.

The names of this package are imported when they are first used: the parser alone needs no database.
"""

from typing import TYPE_CHECKING

from messager.lazy import lazy_exports

if TYPE_CHECKING:
    from .event_text import EventText as EventText
    from .event_text import attributes_of as attributes_of
    from .event_text import event_to_dict as event_to_dict
    from .reader import import_jsonl as import_jsonl
    from .reader import read as read
    from .writer import export_jsonl as export_jsonl
    from .writer import write as write

_EXPORTS = {
    "event_text": "EventText attributes_of event_to_dict",
    "reader": "import_jsonl read",
    "writer": "export_jsonl write",
}

__getattr__, __dir__, __all__ = lazy_exports(__name__, globals(), _EXPORTS)
