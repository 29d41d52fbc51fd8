"""Replay with live agents: cast, schedule, gates, release of recorded messages, report. It loads no database driver."""
