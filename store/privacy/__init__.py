"""Redaction and pseudonyms."""
