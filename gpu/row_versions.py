"""Whether rows have changed, told by PostgreSQL's own marks of row versions: one cheap query, no row is read.

Every insert and update writes a row anew, at another place (`ctid`) or in another transaction (`xmin`). A digest of
these marks therefore changes with every change that is committed, whoever makes it; no writer has to remember anything.
A table that is rewritten as a whole (`VACUUM FULL`) looks changed as well, which costs one needless look.
"""

from __future__ import annotations

import hashlib
from typing import Any

from django.db import connection
from django.db.models import QuerySet, TextField
from django.db.models.expressions import Expression
from django.db.models.sql.compiler import SQLCompiler


class _Mark(Expression):
    """Place and transaction of a row of the query's own table."""

    output_field = TextField()

    def as_sql(self, compiler: SQLCompiler, connection: Any) -> tuple[str, tuple[str | int, ...]]:
        """Return `table.ctid || table.xmin`."""
        table = compiler.quote_name(str(compiler.query.get_initial_alias()))
        return f"{table}.ctid::text || {table}.xmin::text", ()


def row_versions(*found: QuerySet[Any]) -> str:
    """Return a digest of which rows `found` hold, and of their versions. One query."""
    parts: list[str] = []
    values: list[Any] = []
    for rows in found:
        query = rows.order_by().values_list(_Mark()).query
        if query.is_empty():
            continue
        sql, params = query.sql_with_params()
        parts.append(
            "(SELECT count(*) || '/' || coalesce(sum(hashtextextended(mark, 0)), 0)"  # noqa: S608  no values from outside
            f" FROM ({sql}) AS version (mark))"
        )
        values += params
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT {', '.join(parts)}", values)
        told = cursor.fetchone()
    return hashlib.sha256(repr(told).encode()).hexdigest()[:32]
