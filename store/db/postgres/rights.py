"""The rights that a user of PostgreSQL lacks on a store, with the commands that grant them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..schema import experiment, metadata, recorder

_TABLES = tuple(table.name for table in metadata.sorted_tables)
_SEQUENCES = tuple(f"{table.name}_id_seq" for table in metadata.sorted_tables if table.autoincrement_column is not None)
_NAMES = ("alembic_version", *_TABLES, "event_view", *_SEQUENCES)
_JOBS: tuple[tuple[str, Mapping[str, tuple[str, ...]]], ...] = (
    ("read", {"SELECT": ("alembic_version", *_TABLES, "event_view")}),
    ("record", {"INSERT": _TABLES, "UPDATE": (experiment.name, recorder.name), "USAGE": _SEQUENCES}),
    ("remove", {"DELETE": _TABLES}),
)
"""The jobs of a user, and the rights that each needs in addition to those before it."""

# The schema is found by name: the search path excludes schemas that the user may not use.
_SCHEMA = """
SELECT current_user::text AS user, current_setting('search_path') AS path, quote_ident(n.nspname) AS schema, n.oid,
    has_schema_privilege(n.oid, 'USAGE') AS usage, has_schema_privilege(n.oid, 'CREATE') AS create
FROM (VALUES (1)) one LEFT JOIN LATERAL (
    SELECT found.oid, found.nspname
    FROM unnest(string_to_array(current_setting('search_path'), ',')) WITH ORDINALITY given (name, place)
    JOIN pg_namespace found ON found.nspname = replace(trim(BOTH ' "' FROM given.name), '$user', current_user)
    ORDER BY found.nspname IS DISTINCT FROM current_schema(), given.place
    LIMIT 1
) n ON true
"""
_RIGHTS = """
SELECT c.relname::text AS name, w.word, pg_get_userbyid(c.relowner)::text AS owner,
    pg_has_role(c.relowner, 'USAGE') AS owned,
    CASE c.relkind WHEN 'S' THEN has_sequence_privilege(c.oid, w.word)
        ELSE has_table_privilege(c.oid, w.word) END AS has
FROM pg_class c
JOIN unnest('{SELECT,INSERT,UPDATE,DELETE,USAGE}'::text[]) w (word) ON (c.relkind = 'S') = (w.word = 'USAGE')
WHERE c.relnamespace = $1 AND c.relkind IN ('r', 'v', 'S') AND c.relname = ANY ($2::name[])
"""


async def has_schema(connection: Any) -> bool:
    """Return whether any schema of the search path of an asyncpg connection exists, with rights on it or without."""
    return (await connection.fetchrow(_SCHEMA))["oid"] is not None


async def missing(connection: Any) -> str | None:
    """Return the missing rights of the user of an asyncpg connection and the remedy; None if none is missing."""
    schema_row = await connection.fetchrow(_SCHEMA)
    if schema_row["oid"] is None:
        return f"no schema of its search_path ({schema_row['path']}) is there: make one with `CREATE SCHEMA`"
    user, schema = _quoted(schema_row["user"]), schema_row["schema"]
    on_schema = [word for word in ("USAGE", "CREATE") if not schema_row[word.lower()]]
    rows = await connection.fetch(_RIGHTS, schema_row["oid"], _NAMES)
    if experiment.name not in {row["name"] for row in rows}:
        grant = f"GRANT {', '.join(on_schema)} ON SCHEMA {schema} TO {user}"
        return f"the user {user} may not make its tables: `{grant}`" if on_schema else None
    lacking = {(row["word"], row["name"]) for row in rows if not row["has"]}
    grants = [f"GRANT USAGE ON SCHEMA {schema} TO {user}"] if "USAGE" in on_schema else []
    within = "" if schema == "public" else f"{schema}."
    parts = []
    for job, rights in _JOBS:
        for word, names in rights.items():
            if found := [f"{within}{name}" for name in names if (word, name) in lacking]:
                kind = "SEQUENCE " if word == "USAGE" else ""
                grants.append(f"GRANT {word} ON {kind}{', '.join(found)} TO {user}")
        if grants:
            parts.append(f"to {job}, `{'; '.join(grants)}`")
            grants = []
    if owners := sorted({row["owner"] for row in rows if not row["owned"]}):
        parts.append(f"to redact or upgrade, be {' and '.join(map(_quoted, owners))}, who owns its tables")
    elif "CREATE" in on_schema:
        parts.append(f"to upgrade, `GRANT CREATE ON SCHEMA {schema} TO {user}`")
    return f"the user {user} lacks rights on it: {'; '.join(parts)}" if parts else None


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
