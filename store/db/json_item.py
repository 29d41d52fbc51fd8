"""An item of a column of JSON text, as an SQL expression of every database."""

from __future__ import annotations

from typing import Any

from sqlalchemy import BigInteger, ColumnElement, String
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.functions import FunctionElement


class _Item(FunctionElement[Any]):
    """The item at a path of keys and indices, null if there is none."""

    inherit_cache = False

    def __init__(self, column: ColumnElement[Any], path: tuple[str | int, ...], number: bool) -> None:
        self.path = path
        self.type = BigInteger() if number else String()
        super().__init__(column)


def text_item(column: ColumnElement[Any], *path: str | int) -> ColumnElement[Any]:
    """Return the text at a path of keys and indices of a column with JSON text; null if there is none."""
    return _Item(column, path, number=False)


def number_item(column: ColumnElement[Any], *path: str | int) -> ColumnElement[Any]:
    """Return the integer at a path of keys and indices of a column with JSON text; null if there is none."""
    return _Item(column, path, number=True)


@compiles(_Item, "sqlite")
def _of_sqlite(element: _Item, compiler: Any, **options: Any) -> str:
    column = compiler.process(element.clauses, **options)
    path = "".join(f"[{each}]" if isinstance(each, int) else f".{each}" for each in element.path)
    return f"json_extract({column}, '${path}')"


@compiles(_Item, "postgresql")
def _of_postgres(element: _Item, compiler: Any, **options: Any) -> str:
    column = compiler.process(element.clauses, **options)
    item = f"(CAST({column} AS json) #>> '{{{','.join(map(str, element.path))}}}')"
    return f"CAST({item} AS bigint)" if isinstance(element.type, BigInteger) else item
