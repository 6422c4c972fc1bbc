"""Pure decisions: addresses, ranges, scaling, batch policy, exhaustion, debounce, slice table, settings."""
