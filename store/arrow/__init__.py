"""Selections of events as record batches of pyarrow: read by a driver of ADBC, or event by event."""
