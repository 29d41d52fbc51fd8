"""Queries: overview, status, age and size, delays, problems; counts and comparisons in packages of their own.

An outer package. Without it, a recording can be read, exported and replayed, and no question about it is answered.
"""
