"""Privacy: redaction of recorded events, and of meta."""
