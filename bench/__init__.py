"""make bench: what the log costs and what it reaches, each beside what it is held against."""
