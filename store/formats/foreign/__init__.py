"""Files that other programs left behind: one module a format, each with a `Source` of events."""
