"""The projection of an experiment: its events and messages in columns, as Parquet. Disposable, never part of the log.

Without it, SQL, tables, Parquet and CSV files and datasets of Ray go. Recording and replay need none.
"""
