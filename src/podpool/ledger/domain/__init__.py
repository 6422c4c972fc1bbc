"""Decisions of the ledger inside one transaction: allocation, reconcile, recovery, history, administration."""
