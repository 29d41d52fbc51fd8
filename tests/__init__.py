"""Tests read as promises. Real Redis, started here; the in-memory broker is held to the same suite."""
