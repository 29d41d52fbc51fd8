"""Replies: messages that answer an earlier one between the same two agents.

A message from X to Y is a reply if Y has sent X a message that no earlier message of X to Y has answered:

- `heard`: if the schedule of X's Messager is recorded, the message must be among those that had been fetched from it
  when X spoke (`Event.arrival`). The reply answers the last of these; the time begins at its reception there, so one
  clock measures it.
- `next`: otherwise, every message from Y to X that is earlier in replay order counts. The reply answers the last of
  them; the time begins at that message.

Both messages are selected: by channel, time and content. Conditions on agents choose among the replies.

The messages before the one that is answered are answered with it. Each message is answered at most once, and a second
message of X in a row is no reply. Messages to oneself, or without a sender or a recipient, are none.
"""

from __future__ import annotations

from ..projection.selecting import Condition

_PAIR = "e.from_type || ':' || e.from_id AS x, e.to_type || ':' || e.to_id AS y"


def replies(both: Condition, chosen: Condition, limit: int | None) -> str:
    """Return the SELECT of the replies among the messages that fulfil a condition, with `basis` and `duration` (ns).

    `both` is the condition on messages, `chosen` another one on those that are replies.
    """
    return f"""
        WITH spoken AS MATERIALIZED (
            SELECT e.id, e.ts, {_PAIR}, e.messager, CASE WHEN e.kind = 'sent' AND e.messager IN
                (SELECT messager FROM event WHERE kind = 'received') THEN e.heard END AS heard
            FROM event e WHERE {both.where} AND e.kind IN ('sent', 'received') AND e.message_id = e.id AND x <> y),
        fetched AS (
            SELECT r.messager, m.x, m.y, r.arrival, min(r.ts) AS ts FROM event r JOIN spoken m ON m.id = r.message_id
            WHERE r.kind = 'received' AND r.messager IS NOT NULL AND r.arrival IS NOT NULL GROUP BY ALL),
        turns AS (
            SELECT *, lag(x) OVER turn AS earlier, lag(ts) OVER turn AS since,
                max(heard) OVER (PARTITION BY messager, x, y ORDER BY ts, id
                    ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS done
            FROM spoken WINDOW turn AS (PARTITION BY least(x, y), greatest(x, y) ORDER BY ts, id)),
        acts AS (
            SELECT messager, x, y, arrival AS number, ts, NULL AS id, NULL AS done FROM fetched
            UNION ALL SELECT messager, y, x, heard, ts, id, done FROM turns WHERE heard IS NOT NULL),
        answers AS (
            SELECT id, ts, done, last_value(CASE WHEN id IS NULL THEN number END IGNORE NULLS) OVER before AS answered,
                last_value(CASE WHEN id IS NULL THEN ts END IGNORE NULLS) OVER before AS since
            FROM acts WINDOW before AS (PARTITION BY messager, x, y ORDER BY number, id NULLS FIRST)),
        found AS (
            SELECT id, 'heard' AS basis, ts - since AS duration FROM answers
            WHERE id IS NOT NULL AND since IS NOT NULL AND (done IS NULL OR answered > done)
            UNION ALL SELECT id, 'next', ts - since FROM turns WHERE heard IS NULL AND earlier <> x)
        SELECT e.*, found.basis, found.duration FROM found JOIN event e USING (id) WHERE {chosen.where}
        ORDER BY e.ts, e.id{"" if limit is None else f" LIMIT {limit}"}"""
