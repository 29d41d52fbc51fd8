"""Checking, repairing and shrinking a store."""
