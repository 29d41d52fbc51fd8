"""The append-only log: events, names, the hash chain, and reading them back."""
