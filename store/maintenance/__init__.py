"""Maintenance: verification, status, removal, retention, compaction."""
