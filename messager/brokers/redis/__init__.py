"""Redis: one server, sentinels or a cluster."""
