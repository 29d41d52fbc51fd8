"""make bench: costs and rates of the log, each beside those of a peer or a baseline."""
