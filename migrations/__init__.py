"""Alembic revisions. They travel inside the wheel as `messager_store.migrations`."""
