-- Administrative calls, the latest ones: who, what, on which object, with which result. Never a secret.

CREATE TABLE audit_log (
  number INTEGER PRIMARY KEY,
  at REAL NOT NULL,
  token TEXT NOT NULL,
  token_id TEXT NOT NULL,
  action TEXT NOT NULL,
  object TEXT NOT NULL,
  result TEXT NOT NULL
) STRICT;
