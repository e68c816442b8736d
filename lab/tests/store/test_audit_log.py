"""The database rejects changes of the audit log."""

from __future__ import annotations

import pytest
from sqlalchemy import Delete, Update, delete, update

from ringroad_lab.errors import StoreError
from ringroad_lab.store.result_store import ResultStore
from ringroad_lab.web.audit import Action, append, entries
from ringroad_lab.web.tables import AuditEntry


@pytest.mark.parametrize("edit", [delete(AuditEntry), update(AuditEntry).values(actor="nobody")], ids=["delete", "update"])
def test_log_entries_cannot_be_changed(location: str, edit: Delete | Update) -> None:
    with ResultStore(location) as store:
        with store.writing() as database:
            append(database, 1.7e9, "user alice", Action.COMMENT, old="", new="noisy")
        with pytest.raises(StoreError, match="only added to"), store.writing() as database:
            database.execute(edit)
        with store.reading() as database:
            found, total = entries(database, limit=10)
            assert total == 1
            assert (found[0].actor, found[0].action, found[0].new) == ("user alice", "comment", "noisy")
