"""A table of a PostgreSQL store and its indexes, as `..log_tables` compares them."""

from __future__ import annotations

from sqlalchemy import Connection, text

from ..log_tables import index_text

_TABLE = """
SELECT
    CASE WHEN relkind <> 'r' THEN 'is a view, partitioned, or elsewhere' END,
    CASE WHEN relrowsecurity THEN 'has row security' END,
    CASE WHEN EXISTS (SELECT FROM pg_rewrite WHERE ev_class = c.oid) THEN 'has a rule' END,
    CASE WHEN EXISTS (SELECT FROM pg_inherits WHERE inhparent = c.oid) THEN 'has tables that inherit from it' END,
    (SELECT 'has the generated column ' || min(attname) FROM pg_attribute WHERE attrelid = c.oid AND attgenerated <> '')
FROM pg_class c WHERE oid = CAST(:name AS regclass)
"""
_INDEXES = """
SELECT
    indisunique,
    ARRAY(SELECT pg_get_indexdef(indexrelid, n, true) FROM generate_series(1, indnkeyatts) n),
    CASE WHEN indpred IS NOT NULL THEN ', partial' ELSE '' END
    || CASE WHEN EXISTS (SELECT FROM unnest(indoption) o WHERE o <> 0) THEN ', in another order' ELSE '' END
    || CASE WHEN indisvalid AND indisready AND indislive THEN '' ELSE ', invalid' END
FROM pg_index WHERE indrelid = CAST(:name AS regclass)
"""


def describe_table(connection: Connection, name: str) -> tuple[list[str], set[str]]:
    """Return what is unusual about a table, and its indexes as `index_text`."""
    remarks = connection.execute(text(_TABLE), {"name": name}).one()
    rows = connection.execute(text(_INDEXES), {"name": name})
    indexes = {index_text(columns, unique=unique, remarks=odd) for unique, columns, odd in rows}
    return [remark for remark in remarks if remark is not None], indexes
