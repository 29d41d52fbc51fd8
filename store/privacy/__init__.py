"""Privacy: redaction of recorded events, of meta and of new events, and pseudonyms for exports."""
