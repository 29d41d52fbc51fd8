"""Calls to models: the HTTP clients of a process, seen, recorded, and served from a recording."""
