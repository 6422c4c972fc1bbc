"""The ledger in one SQLite file, with a single writer."""
