"""Comparison of experiments: messages aligned by the rules of a `Match`, and figures of runs that are never equal."""
