-- Who may call, and who held which address when. A call writes one event; reading events into tenures comes after it.

CREATE TABLE token (
  id TEXT PRIMARY KEY,
  row TEXT NOT NULL
) STRICT, WITHOUT ROWID;

CREATE INDEX container_in ON container (subnet, number) WHERE NOT closed;

ALTER TABLE event ADD COLUMN unread INTEGER NOT NULL DEFAULT 1;
CREATE INDEX event_unread ON event (number) WHERE unread;

CREATE TABLE tenure ( -- an address in one container's hands
  number INTEGER PRIMARY KEY,
  network TEXT NOT NULL,
  subnet TEXT NOT NULL,
  address TEXT NOT NULL,
  cluster TEXT NOT NULL,
  node TEXT NOT NULL,
  container TEXT NOT NULL,
  "grant" TEXT NOT NULL,
  since REAL NOT NULL,
  until REAL -- NULL while it lasts
) STRICT;
CREATE INDEX tenure_address ON tenure (address, since);
CREATE INDEX tenure_node ON tenure (node, since);
CREATE INDEX tenure_lasting ON tenure (network, address) WHERE until IS NULL;
CREATE INDEX tenure_container ON tenure (container) WHERE until IS NULL;
CREATE INDEX tenure_until ON tenure (until) WHERE until IS NOT NULL;

CREATE TABLE pod ( -- an address in a Pod's hands, as its cluster reported
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
CREATE INDEX pod_until ON pod (until) WHERE until IS NOT NULL;
