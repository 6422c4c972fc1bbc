-- The time that cooldowns and history are measured by, and its difference from the wall clock.

CREATE TABLE ledger_time (
  one INTEGER PRIMARY KEY CHECK (one = 1),
  row TEXT NOT NULL
) STRICT;
