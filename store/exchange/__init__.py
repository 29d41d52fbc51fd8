"""Import and export, one module a format."""
