"""Queries: side tables, overview, comparison."""
