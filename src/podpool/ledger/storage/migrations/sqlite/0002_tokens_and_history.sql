-- Tokens, and who held which address when. A call writes one event; events are indexed into periods later.

CREATE TABLE token (
  id TEXT PRIMARY KEY,
  row TEXT NOT NULL
) STRICT, WITHOUT ROWID;

CREATE INDEX network_container_subnet ON network_container (subnet, number) WHERE NOT closed;

ALTER TABLE event ADD COLUMN unindexed INTEGER NOT NULL DEFAULT 1;
CREATE INDEX event_unindexed ON event (number) WHERE unindexed;

CREATE TABLE allocation_period ( -- an address held by one network container
  number INTEGER PRIMARY KEY,
  network TEXT NOT NULL,
  subnet TEXT NOT NULL,
  address TEXT NOT NULL,
  cluster TEXT NOT NULL,
  node TEXT NOT NULL,
  nc_id TEXT NOT NULL,
  "grant" TEXT NOT NULL,
  since REAL NOT NULL,
  until REAL -- NULL while it is held
) STRICT;
CREATE INDEX allocation_period_address ON allocation_period (address, since);
CREATE INDEX allocation_period_node ON allocation_period (node, since);
CREATE INDEX allocation_period_open ON allocation_period (network, address) WHERE until IS NULL;
CREATE INDEX allocation_period_nc ON allocation_period (nc_id) WHERE until IS NULL;
CREATE INDEX allocation_period_until ON allocation_period (until) WHERE until IS NOT NULL;

CREATE TABLE pod_usage ( -- an address used by one Pod, as reported by its cluster
  network TEXT NOT NULL,
  address TEXT NOT NULL,
  cluster TEXT NOT NULL,
  uid TEXT NOT NULL,
  namespace TEXT NOT NULL,
  name TEXT NOT NULL,
  since REAL NOT NULL,
  until REAL,
  PRIMARY KEY (network, address, cluster, uid)
) STRICT, WITHOUT ROWID;
CREATE INDEX pod_usage_until ON pod_usage (until) WHERE until IS NOT NULL;
