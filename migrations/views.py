"""The view `event_view`, for each database: one row per event, with names for ids.

A query for one experiment reads only its events.
"""

from __future__ import annotations

from messager_store.log.attributes import ATTRIBUTES

_COLUMNS = """
    x.exp_id AS exp_id,
    e.ts || ':' || r.ordinal || ':' || (e.id & 1099511627775) AS cursor,
    e.ts AS ts,
    {time} AS time,
    r.ordinal AS recorder,
    e.id & 1099511627775 AS seq,
    {kind} AS kind,
    {channel} AS channel,
    {from_id} AS from_id,
    {to_id} AS to_id,
    {derived} AS derived,
    {attributes},
    {cause} AS cause,
    {meta} AS meta,
    e.payload AS payload,
    e.id AS id,
    e.experiment_id AS experiment_id,
    {messager} AS messager,
    {origin} AS origin"""

_KIND = """CASE e.kind WHEN 1 THEN 'sent' WHEN 2 THEN 'received' WHEN 3 THEN 'blocked' WHEN 4 THEN 'failed'
        WHEN 5 THEN 'gap' WHEN 6 THEN 'mark' WHEN 7 THEN 'asked' WHEN 8 THEN 'answered' END"""

_FROM = """
FROM experiment x
JOIN event e ON e.experiment_id = x.id
JOIN recorder r ON r.id = e.id >> 40
LEFT JOIN name c ON c.id = e.channel_id
LEFT JOIN name f ON f.id = e.from_id
LEFT JOIN name t ON t.id = e.to_id
LEFT JOIN name m ON m.id = e.messager_id
WHERE x.status IN ('open', 'closed')"""


def _attributes(text: str, integer: str) -> str:
    """Return the columns of the attributes that are a text or an integer, from SQL with the stored key as `{key}`."""
    made = {"text": text, "integer": integer}
    shown = [attribute for attribute in ATTRIBUTES if attribute.column is not None]
    return ",\n    ".join(f"{made[one.column or ''].format(key=one.key)} AS {one.name}" for one in shown)


# Ids keep their JSON type (5 is not '5'). Integers beyond the range of the database, and names that are not text,
# are shown as stored: JSON, or bytes in hex.
_SQLITE_ID = """CASE
        WHEN {name}.value IS NULL THEN NULL
        WHEN {name}.text IS NULL THEN 'hex:' || hex({name}.value)
        WHEN json_valid({name}.text) IS NOT 1 THEN {name}.text
        WHEN json_type({name}.text) = 'integer' AND length({name}.text) > 18 THEN {name}.text
        ELSE json_extract({name}.text, '$') END"""
_SQLITE_CAUSE = """CASE json_type(e.attributes, '$.c')
        WHEN 'integer' THEN (e.id >> 40 << 40) | json_extract(e.attributes, '$.c')
        WHEN 'array' THEN (SELECT q.id << 40 FROM recorder q WHERE q.uuid = json_extract(e.attributes, '$.c[0]'))
            | json_extract(e.attributes, '$.c[1]') END"""
_SQLITE_COLUMNS = _COLUMNS.format(
    attributes=_attributes("json_extract(e.attributes, '$.{key}')", "json_extract(e.attributes, '$.{key}')"),
    cause=_SQLITE_CAUSE,
    meta="json_extract(e.attributes, '$.m')",
    kind=_KIND,
    time="""strftime('%Y-%m-%dT%H:%M:%S', (e.ts - ((e.ts % 1000000000) + 1000000000) % 1000000000) / 1000000000,
        'unixepoch') || printf('.%09dZ', ((e.ts % 1000000000) + 1000000000) % 1000000000)""",
    channel="CASE WHEN c.value IS NOT NULL THEN coalesce(c.text, 'hex:' || hex(c.value)) END",
    from_id=_SQLITE_ID.format(name="f"),
    to_id=_SQLITE_ID.format(name="t"),
    derived="e.flags & 3",
    messager="CASE WHEN m.value IS NOT NULL THEN coalesce(m.text, 'hex:' || hex(m.value)) END",
    origin="json_extract(e.attributes, '$.o[0]') || ':' || json_extract(e.attributes, '$.o[1]')",
)
_SQLITE_VIEWS = (f"CREATE VIEW event_view AS\nSELECT{_SQLITE_COLUMNS}{_FROM}",)

# PostgreSQL raises for text that is not JSON and bytes that are not text, without a way to test them before. Functions
# that handle errors must not run in parallel plans (the default).
_FUNCTIONS = (
    """
CREATE FUNCTION messager_id(value bytea, shown text) RETURNS jsonb LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
    RETURN convert_from(value, 'UTF8')::jsonb;
EXCEPTION WHEN others THEN
    RETURN to_jsonb(coalesce(shown, 'hex:' || upper(encode(value, 'hex'))));
END $$""",
    """
CREATE FUNCTION messager_member(value text, key text) RETURNS text LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
    RETURN value::json ->> key;
EXCEPTION WHEN others THEN
    RETURN NULL;
END $$""",
)
_POSTGRES_NAME = "coalesce({name}.text, 'hex:' || upper(encode({name}.value, 'hex')))"
_POSTGRES_CAUSE = """CASE json_typeof(e.attributes::json -> 'c')
        WHEN 'number' THEN (e.id >> 40 << 40) | (e.attributes::json ->> 'c')::bigint
        WHEN 'array' THEN (SELECT q.id << 40 FROM recorder q WHERE q.uuid = e.attributes::json #>> '{c,0}')
            | (e.attributes::json #>> '{c,1}')::bigint END"""
_POSTGRES_COLUMNS = _COLUMNS.format(
    attributes=_attributes("messager_member(e.attributes, '{key}')", "(e.attributes::json ->> '{key}')::bigint"),
    cause=_POSTGRES_CAUSE,
    meta="(e.attributes::json -> 'm')::text",
    kind=_KIND,
    time="""to_char(
        to_timestamp(floor(e.ts::numeric / 1000000000)::double precision) AT TIME ZONE 'UTC',
        'YYYY-MM-DD"T"HH24:MI:SS.') || lpad((((e.ts % 1000000000) + 1000000000) % 1000000000)::text, 9, '0') || 'Z'""",
    channel=_POSTGRES_NAME.format(name="c"),
    from_id="messager_id(f.value, f.text)",
    to_id="messager_id(t.value, t.text)",
    derived="e.flags & 3::smallint",
    messager=_POSTGRES_NAME.format(name="m"),
    origin="(e.attributes::json #>> '{o,0}') || ':' || (e.attributes::json #>> '{o,1}')",
)
_POSTGRES_VIEWS = (*_FUNCTIONS, f"CREATE VIEW event_view AS\nSELECT{_POSTGRES_COLUMNS}{_FROM}")

CREATE = {"sqlite": _SQLITE_VIEWS, "postgresql": _POSTGRES_VIEWS}

_DROP_VIEWS = ("DROP VIEW IF EXISTS event_view",)
_MADE = ("messager_id(bytea, text)", "messager_member(text, text)")

DROP = {
    "sqlite": _DROP_VIEWS,
    "postgresql": (*_DROP_VIEWS, *(f"DROP FUNCTION IF EXISTS {function}" for function in _MADE)),
}
