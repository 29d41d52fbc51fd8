"""Alembic revisions, included in the wheel as `messager_store.migrations`."""
