"""The views of revision 0003. Thin: as those of revision 0001, until they read the side tables."""

from __future__ import annotations

from . import views

DROP_EARLIER = views.DROP
CREATE = {
    name: tuple(
        statement.replace(
            "SELECT v.*, CASE v.kind WHEN 'received' THEN v.ts ELSE d.received_at END AS received_at\n",
            "SELECT v.*, CASE v.kind WHEN 'received' THEN v.ts ELSE "
            "(SELECT min(d.received_at) FROM delivery d WHERE d.sending_id = e.id) END AS received_at\n",
        )
        .replace(
            "SELECT v.*, d.received_at AS received_at\n",
            "SELECT v.*, (SELECT min(d.received_at) FROM delivery d WHERE d.sending_id = e.id) AS received_at\n",
        )
        .replace("LEFT JOIN delivery d ON d.event_id = e.id\n", "")
        for statement in statements
    )
    for name, statements in views.CREATE.items()
}
DROP = views.DROP
