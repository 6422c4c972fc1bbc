CREATE INDEX block_ready ON block (subnet, ready, number) WHERE ready IS NOT NULL;
CREATE INDEX container_foreign ON container (subnet, number) WHERE foreign_agent;
CREATE INDEX container_in ON container (subnet, number) WHERE NOT closed;
CREATE INDEX container_needing ON container (subnet, need_since, number) WHERE need_since IS NOT NULL;
CREATE UNIQUE INDEX container_of ON container (cluster, node, node_uid, subnet) WHERE NOT closed;
CREATE INDEX container_wishing ON container (subnet, wish_since, number) WHERE wish_since IS NOT NULL;
CREATE INDEX event_revision ON event (revision);
CREATE INDEX event_unread ON event (number) WHERE unread;
CREATE INDEX pod_address ON pod (address, since);
CREATE INDEX pod_name ON pod (name, since);
CREATE INDEX pod_node ON pod (node, since);
CREATE INDEX pod_until ON pod (until) WHERE until IS NOT NULL;
CREATE INDEX subnet_due ON subnet (due) WHERE due IS NOT NULL;
CREATE INDEX tenure_address ON tenure (address, since);
CREATE INDEX tenure_container ON tenure (container) WHERE until IS NULL;
CREATE INDEX tenure_lasting ON tenure (network, address) WHERE until IS NULL;
CREATE INDEX tenure_node ON tenure (node, since);
CREATE INDEX tenure_until ON tenure (until) WHERE until IS NOT NULL;
CREATE TABLE alarm (
  subnet INTEGER NOT NULL REFERENCES subnet,
  address TEXT NOT NULL,
  holder INTEGER NOT NULL REFERENCES container,
  claimant INTEGER NOT NULL REFERENCES container,
  "grant" BLOB NOT NULL,
  PRIMARY KEY (subnet, address, claimant)
) STRICT, WITHOUT ROWID;
CREATE TABLE awaited (
  network TEXT NOT NULL,
  subnet TEXT NOT NULL,
  cluster TEXT NOT NULL,
  PRIMARY KEY (network, subnet, cluster)
) STRICT, WITHOUT ROWID;
CREATE TABLE block (
  subnet INTEGER NOT NULL REFERENCES subnet,
  number INTEGER NOT NULL,
  ready INTEGER,
  slots BLOB NOT NULL,
  PRIMARY KEY (subnet, number)
) STRICT;
CREATE TABLE cluster (
  id TEXT PRIMARY KEY,
  row TEXT NOT NULL
) STRICT, WITHOUT ROWID;
CREATE TABLE container (
  number INTEGER PRIMARY KEY AUTOINCREMENT,
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
CREATE TABLE event (
  number INTEGER PRIMARY KEY,
  revision INTEGER NOT NULL,
  at REAL NOT NULL,
  cluster TEXT NOT NULL,
  kind TEXT NOT NULL,
  events TEXT NOT NULL
, unread INTEGER NOT NULL DEFAULT 1) STRICT;
CREATE TABLE ledger (
  one INTEGER PRIMARY KEY CHECK (one = 1),
  revision INTEGER NOT NULL,
  epoch INTEGER NOT NULL
) STRICT;
CREATE TABLE member (
  cluster TEXT NOT NULL,
  network TEXT NOT NULL,
  subnet TEXT NOT NULL,
  PRIMARY KEY (cluster, network, subnet)
) STRICT, WITHOUT ROWID;
CREATE TABLE pod (
  network TEXT NOT NULL,
  address TEXT NOT NULL,
  cluster TEXT NOT NULL,
  uid TEXT NOT NULL,
  namespace TEXT NOT NULL,
  name TEXT NOT NULL,
  since REAL NOT NULL,
  until REAL, node TEXT NOT NULL DEFAULT '',
  PRIMARY KEY (network, address, cluster, uid)
) STRICT, WITHOUT ROWID;
CREATE TABLE sqlite_sequence(name,seq);
CREATE TABLE subnet (
  number INTEGER PRIMARY KEY,
  network TEXT NOT NULL,
  name TEXT NOT NULL,
  due REAL,
  row TEXT NOT NULL,
  UNIQUE (network, name)
) STRICT;
CREATE TABLE tenure (
  number INTEGER PRIMARY KEY,
  network TEXT NOT NULL,
  subnet TEXT NOT NULL,
  address TEXT NOT NULL,
  cluster TEXT NOT NULL,
  node TEXT NOT NULL,
  container TEXT NOT NULL,
  "grant" TEXT NOT NULL,
  since REAL NOT NULL,
  until REAL
) STRICT;
CREATE TABLE token (
  id TEXT PRIMARY KEY,
  row TEXT NOT NULL
) STRICT, WITHOUT ROWID;
PRAGMA user_version=3;
