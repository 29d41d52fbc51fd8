"""Measurements: always two sides in one run, given as ratios."""
