"""Questions to the log: counts, deliveries, comparison."""
