"""PostgreSQL: one server, many writers."""
