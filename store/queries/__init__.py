"""Queries: overview, comparison, deliveries."""
