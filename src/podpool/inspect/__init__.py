"""The state of one cluster for operators: a live model, status, search, diagnosis, audit, forecast."""
