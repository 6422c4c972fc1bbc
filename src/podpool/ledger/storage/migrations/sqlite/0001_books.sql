-- The books. Rows are JSON; what stands beside it is what they are found by.

CREATE TABLE ledger (
  one INTEGER PRIMARY KEY CHECK (one = 1),
  revision INTEGER NOT NULL,
  epoch INTEGER NOT NULL
) STRICT;
INSERT INTO ledger VALUES (1, 0, 0);

CREATE TABLE cluster (
  id TEXT PRIMARY KEY,
  row TEXT NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE subnet (
  number INTEGER PRIMARY KEY,
  network TEXT NOT NULL,
  name TEXT NOT NULL,
  due REAL,
  row TEXT NOT NULL,
  UNIQUE (network, name)
) STRICT;
CREATE INDEX subnet_due ON subnet (due) WHERE due IS NOT NULL;

CREATE TABLE container (
  number INTEGER PRIMARY KEY AUTOINCREMENT, -- never given again: slots refer to it
  id TEXT NOT NULL UNIQUE,
  cluster TEXT NOT NULL,
  subnet INTEGER NOT NULL REFERENCES subnet,
  node TEXT NOT NULL,
  node_uid TEXT NOT NULL,
  closed INTEGER NOT NULL,
  foreign_agent INTEGER NOT NULL,
  need_since REAL,
  wish_since REAL,
  row TEXT NOT NULL
) STRICT;
CREATE UNIQUE INDEX container_of ON container (cluster, node, node_uid, subnet) WHERE NOT closed;
CREATE INDEX container_needing ON container (subnet, need_since, number) WHERE need_since IS NOT NULL;
CREATE INDEX container_wishing ON container (subnet, wish_since, number) WHERE wish_since IS NOT NULL;
CREATE INDEX container_foreign ON container (subnet, number) WHERE foreign_agent;

CREATE TABLE block (
  subnet INTEGER NOT NULL REFERENCES subnet,
  number INTEGER NOT NULL,
  ready INTEGER, -- the stamp of the slot that is free for longest; NULL when all have owners
  slots BLOB NOT NULL,
  PRIMARY KEY (subnet, number)
) STRICT;
CREATE INDEX block_ready ON block (subnet, ready, number) WHERE ready IS NOT NULL;

CREATE TABLE event ( -- one row for each call that changed something
  number INTEGER PRIMARY KEY,
  revision INTEGER NOT NULL,
  at REAL NOT NULL,
  cluster TEXT NOT NULL,
  kind TEXT NOT NULL,
  events TEXT NOT NULL
) STRICT;
CREATE INDEX event_revision ON event (revision);

CREATE TABLE member (
  cluster TEXT NOT NULL,
  network TEXT NOT NULL,
  subnet TEXT NOT NULL,
  PRIMARY KEY (cluster, network, subnet)
) STRICT, WITHOUT ROWID;

CREATE TABLE awaited (
  network TEXT NOT NULL,
  subnet TEXT NOT NULL,
  cluster TEXT NOT NULL,
  PRIMARY KEY (network, subnet, cluster)
) STRICT, WITHOUT ROWID;

CREATE TABLE alarm (
  subnet INTEGER NOT NULL REFERENCES subnet,
  address TEXT NOT NULL, -- an IPv6 address does not fit into an INTEGER
  holder INTEGER NOT NULL REFERENCES container,
  claimant INTEGER NOT NULL REFERENCES container,
  "grant" BLOB NOT NULL,
  PRIMARY KEY (subnet, address, claimant)
) STRICT, WITHOUT ROWID;
