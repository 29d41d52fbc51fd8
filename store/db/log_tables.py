"""The tables of the log as a database has them, compared with `schema.py`.

Through a view, a partial index or a rule, a read could show other rows than those that `verify` reads.
"""

from __future__ import annotations

from collections.abc import Iterator

from sqlalchemy import Connection, Table, UniqueConstraint

from .databases import package_of
from .schema import LOG_TABLES


def table_problems(connection: Connection) -> list[str]:
    """Return a line for each way in which a table of the log, or an index of it, is not that of `schema.py`."""
    described = package_of(connection.dialect.name).describe_table
    problems: list[str] = []
    for table in LOG_TABLES:
        remarks, found = described(connection, table.name)
        problems += [f"the table {table.name} {remark}" for remark in remarks]
        wanted = set(_indexes(table))
        problems += [f"the table {table.name} has no {index}" for index in sorted(wanted - found)]
        problems += [f"the table {table.name} has an unknown {index}" for index in sorted(found - wanted)]
    return problems


def index_text(columns: list[str], *, unique: bool, remarks: str = "") -> str:
    """Return an index as text. `remarks` are what makes it another one than a plain index on these columns."""
    return f"{'unique ' if unique else ''}index on {', '.join(columns)}{remarks}"


def _indexes(table: Table) -> Iterator[str]:
    for constraint in (table.primary_key, *table.constraints):
        if constraint is table.primary_key or isinstance(constraint, UniqueConstraint):
            yield index_text([column.name for column in constraint.columns], unique=True)
    for index in table.indexes:
        yield index_text([column.name for column in index.columns], unique=bool(index.unique))
