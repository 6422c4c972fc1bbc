-- Administrative calls, the latest ones: who, what, on which object, with which result. Never a secret.

CREATE TABLE audit_log (
  number bigint PRIMARY KEY,
  at double precision NOT NULL,
  token text NOT NULL,
  token_id text NOT NULL,
  action text NOT NULL,
  object text NOT NULL,
  result text NOT NULL
);
