"""The web page: one cluster's addresses, live. It reads, and writes nothing."""
