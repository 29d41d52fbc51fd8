"""Databases: engines, tables and migrations; everything that differs between SQLite and PostgreSQL."""
