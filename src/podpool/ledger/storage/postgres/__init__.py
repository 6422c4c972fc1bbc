"""The ledger on PostgreSQL: any number of replicas on one database."""
