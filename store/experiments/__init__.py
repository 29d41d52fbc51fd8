"""The registry of experiments and their recorders."""
