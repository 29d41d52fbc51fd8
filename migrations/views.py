"""The two views, for each database.

`event_view` has one row per event, with names for ids; `text` comes from the side table `said`, null if `indexed` is 0.
`message` has one row per message, by the rule of `messager_store.log.messages`: the sendings that did not fail, and
the receptions of one listener while no recorder of a sender was recording, except those in `delivery`.

A query for one experiment reads only its events: every subquery has the columns `exp_id` and `experiment_id`, so that
both databases apply a condition on one of them inside the subquery. Each subquery runs once per query.
"""

from __future__ import annotations

from messager_store.log.attributes import ATTRIBUTES

_MIN, _MAX = "-9223372036854775807 - 1", "9223372036854775807"
_SILENT = "30000000000"

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
    s.text AS text,
    e.payload AS payload,
    e.id AS id,
    e.experiment_id AS experiment_id,
    CASE WHEN s.event_id IS NULL THEN 0 ELSE 1 END AS indexed,
    {messager} AS messager,
    {origin} AS origin"""

_KIND = """CASE e.kind WHEN 1 THEN 'sent' WHEN 2 THEN 'received' WHEN 3 THEN 'blocked' WHEN 4 THEN 'failed'
        WHEN 5 THEN 'gap' WHEN 6 THEN 'mark' WHEN 7 THEN 'asked' WHEN 8 THEN 'answered' END"""

_FROM = """
FROM experiment x
JOIN event e ON e.experiment_id = x.id
JOIN recorder r ON r.id = e.id >> 40
LEFT JOIN said s ON s.event_id = e.id
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


def _later(time: str) -> str:
    """Return SQL for the time until which a silent recorder may be alive: PostgreSQL raises if a sum overflows."""
    return f"CASE WHEN {time} > {_MAX} - {_SILENT} THEN {_MAX} ELSE {time} + {_SILENT} END"


# The times of a recorder: `started` and `ended` are null if unknown; `began` and `until` are its session; it may have
# been recording until `silent`.
_SESSIONS = f"""(
    SELECT id, tap, first_ts, last_ts,
        CASE WHEN role <> 'import' THEN started_at ELSE coalesce(started, {_MIN}) END AS began,
        CASE WHEN ended IS NOT NULL THEN ended WHEN role <> 'import' THEN heartbeat_at ELSE {_MAX} END AS until,
        CASE WHEN ended IS NOT NULL THEN ended
            WHEN role <> 'import' THEN CASE unclean WHEN 0 THEN {_later("heartbeat_at")} ELSE heartbeat_at END
            WHEN unclean <> 0 OR started IS NULL OR started = {_MIN} THEN {_MAX}
            WHEN last_ts > started THEN {_later("last_ts")}
            ELSE {_later("started")} END AS silent
    FROM (
        SELECT r.id AS id, r.role AS role, r.started_at AS started_at, r.heartbeat_at AS heartbeat_at,
            r.first_ts AS first_ts, r.last_ts AS last_ts, r.unclean AS unclean,
            CASE WHEN r.role = 'import' THEN coalesce({{role}}, 'import') ELSE r.role END <> 'messager' AS tap,
            CASE WHEN r.role = 'import' THEN {{started}} END AS started,
            CASE WHEN r.role = 'import' THEN {{ended}} WHEN r.unclean = 0 THEN r.ended_at END AS ended
        FROM recorder r
    ) facts
)"""

# Events of a kind by channel and recorder. Recorders without such events are not read.
_USE = """(
        SELECT x.exp_id AS exp_id, x.id AS experiment_id, e.channel_id AS channel_id, r.id AS recorder_id,
            count(*) AS events
        FROM experiment x JOIN recorder r ON r.experiment_id = x.id {events}
        WHERE r.{kind}_count > 0 AND e.kind = {code}
        GROUP BY x.exp_id, x.id, e.channel_id, r.id
    )"""

# Receptions by channel and recorder, with the recorder's session. DISTINCT here and in _RECORDED, and the grouping in
# _RETRACTED, make the databases compute them once; SQLite would otherwise do it again for each event.
_HEARD = """(
            SELECT DISTINCT u.exp_id, u.experiment_id, u.channel_id, u.recorder_id, u.events, a.tap, a.began, a.until
            FROM {heard} u JOIN {sessions} a ON a.id = u.recorder_id
        )"""

_BETTER = """
                SELECT 1 FROM {heard} p
                WHERE p.exp_id = {to}.exp_id AND p.experiment_id = {to_id} AND p.channel_id = h.channel_id
                    AND p.began <= h.until AND h.began <= p.until
                    AND (p.tap, p.events, -p.recorder_id) > (h.tap, h.events, -h.recorder_id)"""

_RECORDED = """
        SELECT 1 FROM (
            SELECT DISTINCT k.exp_id, k.experiment_id, k.channel_id,
                CASE WHEN a.last_ts < a.began OR a.first_ts > a.silent OR a.first_ts < a.began THEN a.first_ts
                    ELSE a.began END AS began,
                CASE WHEN a.last_ts < a.began OR a.first_ts > a.silent OR a.last_ts > a.silent THEN a.last_ts
                    ELSE a.silent END AS until
            FROM {spoken} k JOIN {sessions} a ON a.id = k.recorder_id
        ) i
        WHERE i.exp_id = x.exp_id AND i.experiment_id = e.experiment_id AND i.channel_id = e.channel_id
            AND i.began <= e.ts AND i.until >= e.ts"""

_RETRACTED = """
        SELECT 1 FROM (
            SELECT x.exp_id AS exp_id, x.id AS experiment_id, {cause} AS cause
            FROM experiment x JOIN recorder r ON r.experiment_id = x.id {events}
            WHERE r.failed_count > 0 AND e.kind = 4 AND {cause} IS NOT NULL
            GROUP BY x.exp_id, x.id, {cause}
        ) g
        WHERE g.exp_id = x.exp_id AND g.experiment_id = e.experiment_id AND g.cause = e.id"""

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
_SQLITE_TIME = """CASE WHEN json_valid(r.meta) = 1 AND json_type(r.meta, '$.{key}') = 'integer'
                        AND typeof(json_extract(r.meta, '$.{key}')) = 'integer'
                    THEN json_extract(r.meta, '$.{key}') END"""
_SQLITE_SESSIONS = _SESSIONS.format(
    role="CASE WHEN json_valid(r.meta) = 1 THEN json_extract(r.meta, '$.role') END",
    started=_SQLITE_TIME.format(key="started_at"),
    ended=_SQLITE_TIME.format(key="ended_at"),
)
_SQLITE_READ = "CROSS JOIN event e ON e.id >= r.id << 40 AND e.id < (r.id + 1) << 40"
_SQLITE_HEARD = _HEARD.format(
    heard=_USE.format(events=_SQLITE_READ, kind="received", code=2), sessions=_SQLITE_SESSIONS
)
# From here the database knows the constant of a condition in `x` only, not in `h`.
_SQLITE_BETTER = _BETTER.format(heard=_SQLITE_HEARD, to="x", to_id="e.experiment_id")
_SQLITE_SPOKEN = _USE.format(events=_SQLITE_READ, kind="sent", code=1)

_SQLITE_VIEWS = (
    f"CREATE VIEW event_view AS\nSELECT{_SQLITE_COLUMNS}{_FROM}",
    f"""CREATE VIEW message AS
SELECT{_SQLITE_COLUMNS},
    CASE e.kind WHEN 2 THEN e.ts ELSE (SELECT min(d.received_at) FROM delivery d WHERE d.sending_id = e.id) END
        AS received_at{_FROM}
    AND (e.kind = 1 AND NOT EXISTS ({_RETRACTED.format(events=_SQLITE_READ, cause=_SQLITE_CAUSE)})
    OR e.kind = 2
        AND EXISTS (
            SELECT 1 FROM {_SQLITE_HEARD} h
            WHERE h.exp_id = x.exp_id AND h.experiment_id = e.experiment_id AND h.channel_id = e.channel_id
                AND h.recorder_id = r.id
                AND NOT EXISTS ({_SQLITE_BETTER}))
        AND NOT EXISTS ({_RECORDED.format(spoken=_SQLITE_SPOKEN, sessions=_SQLITE_SESSIONS)})
        AND NOT EXISTS (SELECT 1 FROM delivery d WHERE d.event_id = e.id))""",
)

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
    """
CREATE FUNCTION messager_number(value text, key text) RETURNS bigint LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
    RETURN CASE WHEN json_typeof(value::json -> key) = 'number' THEN (value::json ->> key)::bigint END;
EXCEPTION WHEN others THEN
    RETURN NULL;
END $$""",
)
_POSTGRES_NAME = "coalesce({name}.text, 'hex:' || upper(encode({name}.value, 'hex')))"
_POSTGRES_CAUSE = """CASE json_typeof(e.attributes::json -> 'c')
        WHEN 'number' THEN (e.id >> 40 << 40) | (e.attributes::json ->> 'c')::bigint
        WHEN 'array' THEN (SELECT q.id << 40 FROM recorder q WHERE q.uuid = e.attributes::json #>> '{{c,0}}')
            | (e.attributes::json #>> '{{c,1}}')::bigint END"""
_POSTGRES_COLUMNS = _COLUMNS.format(
    attributes=_attributes("messager_member(e.attributes, '{key}')", "(e.attributes::json ->> '{key}')::bigint"),
    cause=_POSTGRES_CAUSE,
    meta="(e.attributes::json -> 'm')::text",
    kind="{kind}",
    time="""to_char(
        to_timestamp(floor(e.ts::numeric / 1000000000)::double precision) AT TIME ZONE 'UTC',
        'YYYY-MM-DD"T"HH24:MI:SS.') || lpad((((e.ts % 1000000000) + 1000000000) % 1000000000)::text, 9, '0') || 'Z'""",
    channel=_POSTGRES_NAME.format(name="c"),
    from_id="messager_id(f.value, f.text)",
    to_id="messager_id(t.value, t.text)",
    derived="e.flags & 3::smallint",
    messager=_POSTGRES_NAME.format(name="m"),
    origin="(e.attributes::json #>> '{{o,0}}') || ':' || (e.attributes::json #>> '{{o,1}}')",
)
_POSTGRES_SESSIONS = _SESSIONS.format(
    role="messager_member(r.meta, 'role')",
    started="messager_number(r.meta, 'started_at')",
    ended="messager_number(r.meta, 'ended_at')",
)
_POSTGRES_READ = "JOIN event e ON e.experiment_id = x.id AND e.id >> 40 = r.id"
_POSTGRES_HEARD = _HEARD.format(
    heard=_USE.format(events=_POSTGRES_READ, kind="received", code=2), sessions=_POSTGRES_SESSIONS
)
_POSTGRES_BETTER = _BETTER.format(heard=_POSTGRES_HEARD, to="h", to_id="h.experiment_id")
_POSTGRES_SPOKEN = _USE.format(events=_POSTGRES_READ, kind="sent", code=1)

_POSTGRES_VIEWS = (
    *_FUNCTIONS,
    f"CREATE VIEW event_view AS\nSELECT{_POSTGRES_COLUMNS.format(kind=_KIND)}{_FROM}",
    f"""CREATE VIEW message AS
SELECT{_POSTGRES_COLUMNS.format(kind="'sent'::text")},
    (SELECT min(d.received_at) FROM delivery d WHERE d.sending_id = e.id) AS received_at{_FROM}
    AND e.kind = 1
    AND NOT EXISTS ({_RETRACTED.format(events=_POSTGRES_READ, cause=_POSTGRES_CAUSE.format())})
UNION ALL
SELECT{_POSTGRES_COLUMNS.format(kind="'received'::text")},
    e.ts AS received_at{_FROM}
    AND e.kind = 2
    AND EXISTS (
        SELECT 1 FROM (
            SELECT DISTINCT h.exp_id, h.experiment_id, h.channel_id, h.recorder_id
            FROM {_POSTGRES_HEARD} h
            WHERE NOT EXISTS ({_POSTGRES_BETTER})
        ) l
        WHERE l.exp_id = x.exp_id AND l.experiment_id = e.experiment_id AND l.channel_id = e.channel_id
            AND l.recorder_id = r.id)
    AND NOT EXISTS ({_RECORDED.format(spoken=_POSTGRES_SPOKEN, sessions=_POSTGRES_SESSIONS)})
    AND NOT EXISTS (SELECT 1 FROM delivery d WHERE d.event_id = e.id)""",
)

CREATE = {"sqlite": _SQLITE_VIEWS, "postgresql": _POSTGRES_VIEWS}

_DROP_VIEWS = ("DROP VIEW IF EXISTS message", "DROP VIEW IF EXISTS event_view")
_MADE = ("messager_id(bytea, text)", "messager_member(text, text)", "messager_number(text, text)")

DROP = {
    "sqlite": _DROP_VIEWS,
    "postgresql": (*_DROP_VIEWS, *(f"DROP FUNCTION IF EXISTS {function}" for function in _MADE)),
}
