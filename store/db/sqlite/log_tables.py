"""A table of an SQLite store and its indexes, as `..log_tables` compares them."""

from __future__ import annotations

from itertools import groupby
from operator import itemgetter

from sqlalchemy import Connection, text

from ..log_tables import index_text

_KIND = "SELECT type, sql FROM sqlite_master WHERE name = :name AND type IN ('table', 'view')"
_COLUMNS = "SELECT name, type, pk, hidden FROM pragma_table_xinfo(:name) ORDER BY pk"
_INDEXES = """
SELECT l.name, l."unique", l.partial, x.name, x."desc", x.coll
FROM pragma_index_list(:name) l, pragma_index_xinfo(l.name) x WHERE x.key ORDER BY l.name, x.seqno
"""


def describe_table(connection: Connection, name: str) -> tuple[list[str], set[str]]:
    """Return what is unusual about a table, and its indexes as `index_text`; the rowid counts as an index."""
    made = connection.execute(text(_KIND), {"name": name}).first()
    if made is None or made.type != "table" or made.sql.split(None, 2)[1].upper() != "TABLE":
        return ["is a view, virtual, or missing"], set()
    columns = connection.execute(text(_COLUMNS), {"name": name}).all()
    remarks = [f"has the generated column {column}" for column, _, _, hidden in columns if hidden]
    key = [(column, type_) for column, type_, place, _ in columns if place]
    indexes = {index_text([key[0][0]], unique=True)} if [type_ for _, type_ in key] == ["INTEGER"] else set()
    for (_, unique, partial), parts in groupby(connection.execute(text(_INDEXES), {"name": name}), itemgetter(0, 1, 2)):
        listed = list(parts)
        plain = all(not part[4] and part[5] == "BINARY" for part in listed)
        remarks_on_it = (", partial" if partial else "") + ("" if plain else ", in another order")
        indexes.add(index_text([part[3] or "an expression" for part in listed], unique=unique, remarks=remarks_on_it))
    return remarks, indexes
