"""Matching of payloads by rules: what replays with live agents, comparisons and tests accept as the same message.

An outer package. Without it, runs can be recorded and replayed, and not compared.
"""
