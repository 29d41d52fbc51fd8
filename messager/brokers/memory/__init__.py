"""In-memory broker."""
