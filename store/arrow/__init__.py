"""Selections of events as record batches of pyarrow: read by a driver of ADBC, or event by event.

An outer package. Without it, Parquet, tables of notebooks and datasets of Ray go.
"""
