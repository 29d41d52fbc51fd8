"""Sharing: events with parts of payloads erased, before they are recorded or exported, and with pseudonyms for agents.

An outer package. Without it, events are recorded and exported as they were sent.
"""
