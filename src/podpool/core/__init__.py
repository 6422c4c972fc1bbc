"""Pure decisions: no I/O, no clock and no randomness of their own, nothing but the standard library and msgspec."""
