"""Recording: from a log hook to committed batches."""
