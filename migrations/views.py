"""The two views of revision 0001, for each database, as their functions for times and JSON differ.

`event_view` has one row per event, with names for ids. `message` has one row per message: its `sent` event if the
channel has any, else the receptions of the listeners that messages.py selects. `received_at` is known once the
experiment is closed. Each subquery runs once per query, none once per row.
"""

from __future__ import annotations

# Ids keep their JSON type (5 is not '5'). Integers beyond the range of the database, and names that are not text,
# are shown as stored: JSON, or bytes in hex.
_SQLITE_ID = """CASE
        WHEN {name}.value IS NULL THEN NULL
        WHEN {name}.text IS NULL THEN 'hex:' || hex({name}.value)
        WHEN json_valid({name}.text) IS NOT 1 THEN {name}.text
        WHEN json_type({name}.text) = 'integer' AND length({name}.text) > 18 THEN {name}.text
        ELSE json_extract({name}.text, '$') END"""

# The text of an object: its content, the texts of the blocks in it, or its field `text`.
_SQLITE_SAID = """coalesce(
            CASE json_type({json}, '$.content')
                WHEN 'text' THEN json_extract({json}, '$.content')
                WHEN 'array' THEN (
                    SELECT group_concat(json_extract(block.value, '$.text'), char(10))
                    FROM json_each({json}, '$.content') block
                    WHERE block.type = 'object' AND json_type(block.value, '$.text') = 'text')
            END,
            CASE json_type({json}, '$.text') WHEN 'text' THEN json_extract({json}, '$.text') END)"""
_SAID = _SQLITE_SAID.format(json="CAST(e.payload AS TEXT)")

_SQLITE_EVENTS = f"""
CREATE VIEW event_view AS
SELECT
    x.exp_id AS exp_id,
    e.ts || ':' || r.ordinal || ':' || (e.id & 1099511627775) AS cursor,
    e.ts AS ts,
    strftime('%Y-%m-%dT%H:%M:%S', (e.ts - ((e.ts % 1000000000) + 1000000000) % 1000000000) / 1000000000, 'unixepoch')
        || printf('.%09dZ', ((e.ts % 1000000000) + 1000000000) % 1000000000) AS time,
    r.ordinal AS recorder,
    e.id & 1099511627775 AS seq,
    CASE e.kind WHEN 1 THEN 'sent' WHEN 2 THEN 'received' WHEN 3 THEN 'blocked'
        WHEN 4 THEN 'failed' WHEN 5 THEN 'gap' WHEN 6 THEN 'mark' END AS kind,
    CASE WHEN c.value IS NOT NULL THEN coalesce(c.text, 'hex:' || hex(c.value)) END AS channel,
    {_SQLITE_ID.format(name="f")} AS from_id,
    {_SQLITE_ID.format(name="t")} AS to_id,
    e.flags & 3 AS derived,
    e.msg_id AS msg_id,
    e.duration_ns AS duration_ns,
    e.receivers AS receivers,
    e.cause AS cause,
    e.meta AS meta,
    CASE
        WHEN e.kind > 4 THEN e.meta
        WHEN e.flags & 4 THEN NULL
        WHEN instr(e.payload, x'00') THEN 'hex:' || hex(e.payload)
        WHEN instr(CAST(e.payload AS TEXT), '\\u0000') THEN CAST(e.payload AS TEXT)
        WHEN json_valid(CAST(e.payload AS TEXT)) IS NOT 1 THEN CAST(e.payload AS TEXT)
        WHEN json_type(CAST(e.payload AS TEXT)) = 'text' THEN json_extract(CAST(e.payload AS TEXT), '$')
        WHEN json_type(CAST(e.payload AS TEXT)) <> 'object' THEN CAST(e.payload AS TEXT)
        ELSE coalesce(
            (SELECT CASE WHEN json_valid(said) = 1 THEN coalesce({_SQLITE_SAID.format(json="said")}, said) ELSE said END
            FROM (SELECT {_SAID} AS said LIMIT 1)),
            CAST(e.payload AS TEXT))
    END AS text,
    e.payload AS payload,
    e.id AS id,
    e.experiment_id AS experiment_id
FROM event e
JOIN experiment x ON x.id = e.experiment_id AND x.status IN ('open', 'closed')
JOIN recorder r ON r.id = e.id >> 40
LEFT JOIN name c ON c.id = e.channel_id
LEFT JOIN name f ON f.id = e.from_id
LEFT JOIN name t ON t.id = e.to_id
"""

_SQLITE_MESSAGES = """
CREATE VIEW message AS
WITH heard AS (
    SELECT e.experiment_id, e.channel_id, r.id AS recorder_id, count(*) AS events,
        CASE r.role WHEN 'import' THEN coalesce(json_extract(r.meta, '$.role'), 'import') ELSE r.role END <> 'messager'
            AS tap,
        CASE r.role WHEN 'import' THEN coalesce(json_extract(r.meta, '$.started_at'), -9223372036854775807)
            ELSE r.started_at END AS began,
        CASE r.role WHEN 'import' THEN coalesce(json_extract(r.meta, '$.ended_at'), 9223372036854775807)
            ELSE coalesce(r.ended_at, r.heartbeat_at) END AS ended
    FROM event e JOIN recorder r ON r.id = e.id >> 40
    WHERE e.kind = 2
    GROUP BY e.experiment_id, e.channel_id, r.id
), listener AS (
    SELECT h.experiment_id, h.channel_id, h.recorder_id FROM heard h
    WHERE NOT EXISTS (
        SELECT 1 FROM heard o
        WHERE o.experiment_id = h.experiment_id AND o.channel_id = h.channel_id
            AND o.began <= h.ended AND h.began <= o.ended
            AND (o.tap, o.events, -o.recorder_id) > (h.tap, h.events, -h.recorder_id))
)
SELECT v.*, CASE v.kind WHEN 'received' THEN v.ts ELSE d.received_at END AS received_at
FROM event_view v
JOIN event e ON e.id = v.id
LEFT JOIN delivery d ON d.event_id = e.id
WHERE (e.kind = 1 AND e.id NOT IN (SELECT cause FROM event WHERE kind = 4 AND cause IS NOT NULL))
    OR (e.kind = 2
        AND (e.experiment_id, e.channel_id) NOT IN (SELECT experiment_id, channel_id FROM event WHERE kind = 1)
        AND (e.experiment_id, e.channel_id, e.id >> 40) IN (SELECT * FROM listener))
"""

# PostgreSQL raises for text that is not JSON and bytes that are not text, without a way to test them before. Its texts
# cannot contain U+0000, as a byte or a JSON escape: both databases show such a payload as stored.
_FUNCTIONS = (
    """
CREATE FUNCTION messager_said(value text) RETURNS text LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE AS $$
DECLARE
    data json;
    kind text;
    texts text;
BEGIN
    data := value::json;
    kind := json_typeof(data -> 'content');
    IF kind = 'string' THEN
        RETURN data ->> 'content';
    END IF;
    IF kind = 'array' THEN
        SELECT string_agg(block ->> 'text', E'\\n' ORDER BY place) INTO texts
        FROM json_array_elements(data -> 'content') WITH ORDINALITY blocks (block, place)
        WHERE json_typeof(block) = 'object' AND json_typeof(block -> 'text') = 'string';
    END IF;
    IF texts IS NULL AND json_typeof(data -> 'text') = 'string' THEN
        RETURN data ->> 'text';
    END IF;
    RETURN texts;
EXCEPTION WHEN others THEN
    RETURN NULL;
END $$""",
    """
CREATE FUNCTION messager_text(payload bytea) RETURNS text LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE AS $$
DECLARE
    plain text;
    said text;
BEGIN
    IF position('\\x00'::bytea IN payload) > 0 THEN
        RETURN 'hex:' || upper(encode(payload, 'hex'));
    END IF;
    plain := convert_from(payload, 'UTF8');
    IF strpos(plain, '\\u0000') > 0 THEN
        RETURN plain;
    END IF;
    IF ltrim(plain, E' \\t\\n\\r') LIKE '"%' THEN
        RETURN plain::json #>> '{}';
    END IF;
    said := messager_said(plain);
    IF strpos(said, '{') > 0 THEN
        said := coalesce(messager_said(said), said);
    END IF;
    RETURN coalesce(said, plain);
EXCEPTION WHEN others THEN
    RETURN plain;
END $$""",
    """
CREATE FUNCTION messager_id(value bytea, shown text) RETURNS jsonb LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$
BEGIN
    RETURN convert_from(value, 'UTF8')::jsonb;
EXCEPTION WHEN others THEN
    RETURN to_jsonb(coalesce(shown, 'hex:' || upper(encode(value, 'hex'))));
END $$""",
    """
CREATE FUNCTION messager_member(value text, key text) RETURNS text LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$
BEGIN
    RETURN value::json ->> key;
EXCEPTION WHEN others THEN
    RETURN NULL;
END $$""",
    """
CREATE FUNCTION messager_number(value text, key text) RETURNS bigint LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$
BEGIN
    RETURN (value::json ->> key)::bigint;
EXCEPTION WHEN others THEN
    RETURN NULL;
END $$""",
)

_POSTGRES_EVENTS = """
CREATE VIEW event_view AS
SELECT
    x.exp_id AS exp_id,
    e.ts || ':' || r.ordinal || ':' || (e.id & 1099511627775) AS cursor,
    e.ts AS ts,
    to_char(
        to_timestamp(floor(e.ts::numeric / 1000000000)::double precision) AT TIME ZONE 'UTC',
        'YYYY-MM-DD"T"HH24:MI:SS.')
        || lpad((((e.ts % 1000000000) + 1000000000) % 1000000000)::text, 9, '0') || 'Z' AS time,
    r.ordinal AS recorder,
    e.id & 1099511627775 AS seq,
    CASE e.kind WHEN 1 THEN 'sent' WHEN 2 THEN 'received' WHEN 3 THEN 'blocked'
        WHEN 4 THEN 'failed' WHEN 5 THEN 'gap' WHEN 6 THEN 'mark' END AS kind,
    coalesce(c.text, 'hex:' || upper(encode(c.value, 'hex'))) AS channel,
    messager_id(f.value, f.text) AS from_id,
    messager_id(t.value, t.text) AS to_id,
    e.flags & 3::smallint AS derived,
    e.msg_id AS msg_id,
    e.duration_ns AS duration_ns,
    e.receivers AS receivers,
    e.cause AS cause,
    e.meta AS meta,
    CASE WHEN e.kind > 4 THEN e.meta WHEN e.flags & 4::smallint <> 0 THEN NULL ELSE messager_text(e.payload) END
        AS text,
    e.payload AS payload,
    e.id AS id,
    e.experiment_id AS experiment_id
FROM event e
JOIN experiment x ON x.id = e.experiment_id AND x.status IN ('open', 'closed')
JOIN recorder r ON r.id = e.id >> 40
LEFT JOIN name c ON c.id = e.channel_id
LEFT JOIN name f ON f.id = e.from_id
LEFT JOIN name t ON t.id = e.to_id
"""

_POSTGRES_MESSAGES = """
CREATE VIEW message AS
WITH heard AS (
    SELECT e.experiment_id, e.channel_id, r.id AS recorder_id, count(*) AS events,
        CASE r.role WHEN 'import' THEN coalesce(messager_member(r.meta, 'role'), 'import') ELSE r.role END
            <> 'messager' AS tap,
        CASE r.role WHEN 'import' THEN coalesce(messager_number(r.meta, 'started_at'), -9223372036854775807)
            ELSE r.started_at END AS began,
        CASE r.role WHEN 'import' THEN coalesce(messager_number(r.meta, 'ended_at'), 9223372036854775807)
            ELSE coalesce(r.ended_at, r.heartbeat_at) END AS ended
    FROM event e JOIN recorder r ON r.id = e.id >> 40
    WHERE e.kind = 2
    GROUP BY e.experiment_id, e.channel_id, r.id
), listener AS (
    SELECT h.experiment_id, h.channel_id, h.recorder_id FROM heard h
    WHERE NOT EXISTS (
        SELECT 1 FROM heard o
        WHERE o.experiment_id = h.experiment_id AND o.channel_id = h.channel_id
            AND o.began <= h.ended AND h.began <= o.ended
            AND (o.tap, o.events, -o.recorder_id) > (h.tap, h.events, -h.recorder_id))
), spoken AS (
    SELECT DISTINCT experiment_id, channel_id FROM event WHERE kind = 1
)
SELECT v.*, d.received_at AS received_at
FROM event_view v
JOIN event e ON e.id = v.id
LEFT JOIN delivery d ON d.event_id = e.id
WHERE e.kind = 1 AND NOT EXISTS (SELECT 1 FROM event f WHERE f.kind = 4 AND f.cause = e.id)
UNION ALL
SELECT v.*, v.ts AS received_at
FROM event_view v
JOIN event e ON e.id = v.id
JOIN listener l ON l.experiment_id = e.experiment_id AND l.channel_id = e.channel_id AND l.recorder_id = e.id >> 40
WHERE e.kind = 2 AND NOT EXISTS (
    SELECT 1 FROM spoken s WHERE s.experiment_id = e.experiment_id AND s.channel_id = e.channel_id)
"""

_VIEWS = ("DROP VIEW message", "DROP VIEW event_view")

CREATE = {
    "sqlite": (_SQLITE_EVENTS, _SQLITE_MESSAGES),
    "postgresql": (*_FUNCTIONS, _POSTGRES_EVENTS, _POSTGRES_MESSAGES),
}
DROP = {
    "sqlite": _VIEWS,
    "postgresql": (
        *_VIEWS,
        "DROP FUNCTION messager_text(bytea)",
        "DROP FUNCTION IF EXISTS messager_plain(bytea)",
        "DROP FUNCTION IF EXISTS messager_said(text)",
        "DROP FUNCTION messager_id(bytea, text)",
        "DROP FUNCTION messager_member(text, text)",
        "DROP FUNCTION messager_number(text, text)",
    ),
}
