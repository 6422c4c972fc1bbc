"""The ledger's HTTP server: routes, authentication, limits, metrics and the OpenAPI document."""
