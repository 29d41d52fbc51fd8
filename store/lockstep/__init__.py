"""Replay with live agents, and forks: cast, schedule, gates, release of recorded messages, report, virtual time.

An outer package. It offers `LiveReplay`, `Fork` and `MESSAGER_REPLAY`, and loads no database driver before it has to.
Without it, the pytest plugin and `--live` go; recordings can still be replayed to listeners.
"""
