"""The views of the second revision: those of the first, and one of its own."""

from __future__ import annotations

from messager_store.migrations import views

_ANNOTATED = """CREATE VIEW annotated AS
SELECT x.exp_id AS exp_id, a.text AS text FROM experiment x JOIN annotation a ON a.experiment_id = x.id"""

CREATE = {dialect: (*statements, _ANNOTATED) for dialect, statements in views.CREATE.items()}
DROP = {dialect: ("DROP VIEW IF EXISTS annotated", *statements) for dialect, statements in views.DROP.items()}
