"""Counts of messages by one or two dimensions."""
