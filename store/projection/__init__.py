"""The projection of an experiment: its messages and deliveries as Parquet, for questions. Disposable, never the log.

Without it there are no questions in columns: `count`, `delays`, `problems`, tables, SQL. Recording and replay need
none.
"""
