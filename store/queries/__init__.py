"""Queries: side tables, overview, delays, problems, SQL; counts and comparisons in packages of their own."""
