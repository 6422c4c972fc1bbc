"""Storage of the ledger: the store protocol, group commit, rows, migrations, backup; SQLite and PostgreSQL."""
