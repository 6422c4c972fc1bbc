CREATE INDEX allocation_period_address ON allocation_period (address, since);
CREATE INDEX allocation_period_nc ON allocation_period (nc_id) WHERE until IS NULL;
CREATE INDEX allocation_period_node ON allocation_period (node, since);
CREATE INDEX allocation_period_open ON allocation_period (network, address) WHERE until IS NULL;
CREATE INDEX allocation_period_until ON allocation_period (until) WHERE until IS NOT NULL;
CREATE INDEX block_ready ON block (subnet, ready, number) WHERE ready IS NOT NULL;
CREATE INDEX event_revision ON event (revision);
CREATE INDEX event_unindexed ON event (network, number) WHERE unindexed;
CREATE UNIQUE INDEX network_container_node ON network_container (cluster, node, node_uid, subnet) WHERE NOT closed;
CREATE INDEX network_container_subnet ON network_container (subnet, number) WHERE NOT closed;
CREATE INDEX network_container_third_party ON network_container (subnet, number) WHERE third_party;
CREATE INDEX network_container_waiting_for_buffer ON network_container (subnet, buffer_short_since, number)
  WHERE buffer_short_since IS NOT NULL;
CREATE INDEX network_container_waiting_for_pods ON network_container (subnet, pod_short_since, number)
  WHERE pod_short_since IS NOT NULL;
CREATE INDEX pod_usage_address ON pod_usage (address, since);
CREATE INDEX pod_usage_name ON pod_usage (name, since);
CREATE INDEX pod_usage_node ON pod_usage (node, since);
CREATE INDEX pod_usage_until ON pod_usage (until) WHERE until IS NOT NULL;
CREATE INDEX subnet_due ON subnet (due) WHERE due IS NOT NULL;
CREATE TABLE allocation_period (
  number INTEGER PRIMARY KEY,
  network TEXT NOT NULL,
  subnet TEXT NOT NULL,
  address TEXT NOT NULL,
  cluster TEXT NOT NULL,
  node TEXT NOT NULL,
  nc_id TEXT NOT NULL,
  "grant" TEXT NOT NULL,
  since REAL NOT NULL,
  until REAL
) STRICT;
CREATE TABLE audit_log (
  number INTEGER PRIMARY KEY,
  at REAL NOT NULL,
  token TEXT NOT NULL,
  token_id TEXT NOT NULL,
  action TEXT NOT NULL,
  object TEXT NOT NULL,
  result TEXT NOT NULL
) STRICT;
CREATE TABLE block (
  subnet INTEGER NOT NULL REFERENCES subnet,
  number INTEGER NOT NULL,
  ready INTEGER,
  slots BLOB NOT NULL,
  PRIMARY KEY (subnet, number)
) STRICT;
CREATE TABLE cluster (
  network TEXT NOT NULL,
  id TEXT NOT NULL,
  row TEXT NOT NULL,
  PRIMARY KEY (network, id)
) STRICT, WITHOUT ROWID;
CREATE TABLE event (
  number INTEGER PRIMARY KEY,
  revision INTEGER NOT NULL,
  at REAL NOT NULL,
  cluster TEXT NOT NULL,
  kind TEXT NOT NULL,
  events TEXT NOT NULL
, unindexed INTEGER NOT NULL DEFAULT 1, network TEXT NOT NULL DEFAULT '') STRICT;
CREATE TABLE ledger_time (
  one INTEGER PRIMARY KEY CHECK (one = 1),
  row TEXT NOT NULL
) STRICT;
CREATE TABLE membership (
  cluster TEXT NOT NULL,
  network TEXT NOT NULL,
  subnet TEXT NOT NULL,
  PRIMARY KEY (cluster, network, subnet)
) STRICT, WITHOUT ROWID;
CREATE TABLE network_container (
  number INTEGER PRIMARY KEY AUTOINCREMENT,
  id TEXT NOT NULL UNIQUE,
  cluster TEXT NOT NULL,
  subnet INTEGER NOT NULL REFERENCES subnet,
  node TEXT NOT NULL,
  node_uid TEXT NOT NULL,
  closed INTEGER NOT NULL,
  third_party INTEGER NOT NULL,
  pod_short_since REAL,
  buffer_short_since REAL,
  row TEXT NOT NULL
) STRICT;
CREATE TABLE ownership_conflict (
  subnet INTEGER NOT NULL REFERENCES subnet,
  address TEXT NOT NULL,
  holder INTEGER NOT NULL REFERENCES network_container,
  claimant INTEGER NOT NULL REFERENCES network_container,
  "grant" BLOB NOT NULL,
  PRIMARY KEY (subnet, address, claimant)
) STRICT, WITHOUT ROWID;
CREATE TABLE pending_inventory (
  network TEXT NOT NULL,
  subnet TEXT NOT NULL,
  cluster TEXT NOT NULL,
  PRIMARY KEY (network, subnet, cluster)
) STRICT, WITHOUT ROWID;
CREATE TABLE pod_usage (
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
CREATE TABLE shard (
  network TEXT PRIMARY KEY,
  revision INTEGER NOT NULL,
  epoch INTEGER NOT NULL
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
CREATE TABLE token (
  id TEXT PRIMARY KEY,
  row TEXT NOT NULL
) STRICT, WITHOUT ROWID;
PRAGMA user_version=7;
