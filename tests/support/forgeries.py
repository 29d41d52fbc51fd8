"""Changes of a store, in SQL, that readers show: `verify` must find each of them."""

from __future__ import annotations

from messager_store.db.schema import event

FORGED = 1 << 40 | 2
"""The id of the event that an altered index hides or moves: seq 2 of the first recorder."""
_REST = ", ".join(column for column in [*event.c.keys()] if column != "id")
_INDEX = "CREATE INDEX ix_event_replay ON event (experiment_id, ts, id)"


def added(number: int) -> str:
    """Return the statement that adds a copy of an event of the first experiment under another id."""
    return f"INSERT INTO event (id, {_REST}) SELECT {number}, {_REST} FROM event WHERE id = {FORGED}"


def index_of_sqlite(definition: str, *, hidden: bool = True) -> tuple[str, ...]:
    """Return statements that make the replay index anew, and if `hidden` restore the text of its definition."""
    made = ("DROP INDEX ix_event_replay", definition)
    text = f"UPDATE sqlite_master SET sql = '{_INDEX}' WHERE name = 'ix_event_replay'"
    return (*made, "PRAGMA writable_schema = ON", text) if hidden else made


def _in_postgres(definition: str, *, hidden: bool = True) -> tuple[str, ...]:
    made = ("DROP INDEX ix_event_replay", definition)
    text = "UPDATE pg_index SET indpred = NULL WHERE indexrelid = 'ix_event_replay'::regclass"
    return (*made, text) if hidden else made


_PARTIAL = f"{_INDEX} WHERE id <> {FORGED}"
_ALIVE = "UPDATE recorder SET ended_at = NULL, heartbeat_at = 9000000000000000000, host = 'elsewhere' WHERE id = 1"
_BEHIND = f"INSERT INTO event (id, {_REST}) SELECT max(id) + 1, {{}} FROM event WHERE id < (2 << 40)"

ROWS: dict[str, tuple[tuple[str, ...], str]] = {
    "seq 0": ((added(1 << 40),), "recorder 1: 1 event belongs to no batch, the first is seq 0"),
    "seq 0 of no recorder": ((added(99 << 40),), "1 event belongs to recorder 99 of the store"),
    "no recorder": ((added(99 << 40 | 1),), "1 event belongs to recorder 99 of the store"),
    "a recorder of another experiment": ((added(3 << 40 | 1000),), "1 event belongs to recorder 3 of the store"),
    "behind the last seq of a recorder that seems alive": (
        (_ALIVE, added(1 << 40 | 1000)),
        "recorder 1: 1 event belongs to no batch, the first is seq 1000",
    ),
    "a closed experiment with a recorder that seems alive": (
        (_ALIVE, "UPDATE experiment SET status = 'closed', closed_at = 5 WHERE id = 1"),
        "the experiment is closed, but recorder 1 is alive",
    ),
    "recorders in another order": (
        (
            "UPDATE recorder SET ordinal = 9 WHERE id = 1",
            "UPDATE recorder SET ordinal = 1 WHERE id = 2",
            "UPDATE recorder SET ordinal = 2 WHERE id = 1",
        ),
        "not numbered in the order of their ids",
    ),
}
"""Statements for a store with recorders 1 and 2 of one experiment and 3 of another, and what `verify` says of them."""

OF_SQLITE: dict[str, tuple[tuple[str, ...], str]] = {
    "an index without an event": (index_of_sqlite(_PARTIAL), "ix_event_replay gives 17 events of the 18"),
    "an index of other times": (
        index_of_sqlite("CREATE INDEX ix_event_replay ON event (experiment_id, (-ts), id)"),
        "events of the 18 in batches, and other times of",
    ),
    "an index that moves an event": (
        index_of_sqlite(
            f"CREATE INDEX ix_event_replay ON event (experiment_id, (CASE id WHEN {FORGED} THEN 99 ELSE ts END), id)"
        ),
        "events of the 18 in batches, and other times of",
    ),
    "a partial index": (index_of_sqlite(_PARTIAL, hidden=False), "unknown index on experiment_id, ts, id, partial"),
    "no index": (("DROP INDEX ix_event_replay",), "has no index on experiment_id, ts, id"),
    "another index": (("CREATE INDEX other ON event (experiment_id, ts)",), "unknown index on experiment_id, ts"),
    "a view in the place of a table": (
        ("ALTER TABLE tag RENAME TO tags", "CREATE VIEW tag AS SELECT * FROM tags"),
        "the table tag is a view, virtual, or missing",
    ),
    "an index of names without one": (
        (
            "CREATE UNIQUE INDEX other ON name (experiment_id, what, hash) WHERE text <> 'c'",
            "PRAGMA writable_schema = ON",
            "UPDATE sqlite_master SET rootpage = (SELECT rootpage FROM sqlite_master WHERE name = 'other') "
            "WHERE name = 'sqlite_autoindex_name_1'",
            "DELETE FROM sqlite_master WHERE name = 'other'",
        ),
        "filters do not find 1 names of its events",
    ),
}
OF_POSTGRES: dict[str, tuple[tuple[str, ...], str]] = {
    "an index without an event": (_in_postgres(_PARTIAL), "ix_event_replay gives 17 events of the 18"),
    "a partial index": (_in_postgres(_PARTIAL, hidden=False), "unknown index on experiment_id, ts, id, partial"),
    "an index on an expression": (
        _in_postgres("CREATE INDEX ix_event_replay ON event (experiment_id, (-ts), id)", hidden=False),
        "unknown index on experiment_id, (- ts), id",
    ),
    "an index that is not valid": (
        ("UPDATE pg_index SET indisvalid = false WHERE indexrelid = 'ix_event_replay'::regclass",),
        "unknown index on experiment_id, ts, id, invalid",
    ),
    "row security": (("ALTER TABLE event ENABLE ROW LEVEL SECURITY",), "the table event has row security"),
    "another table": (("CREATE TABLE other () INHERITS (event)",), "the table event has tables that inherit from it"),
}
