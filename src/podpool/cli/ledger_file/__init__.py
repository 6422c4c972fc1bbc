"""The ledger's configuration as a file: subnets and tokens, compared with the ledger and applied."""
