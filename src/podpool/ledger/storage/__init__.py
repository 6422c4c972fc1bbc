"""Storage of the ledger: group commit, rollback detection, migrations, backup, fsck; SQLite and PostgreSQL."""
