"""Counts of messages by one or two dimensions, from the side table `activity` or from the events."""
