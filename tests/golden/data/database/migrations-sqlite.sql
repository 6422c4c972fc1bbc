-- 0001_tables.sql
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
CREATE UNIQUE INDEX network_container_node ON network_container (cluster, node, node_uid, subnet) WHERE NOT closed;
CREATE INDEX network_container_waiting_for_pods ON network_container (subnet, pod_short_since, number)
  WHERE pod_short_since IS NOT NULL;
CREATE INDEX network_container_waiting_for_buffer ON network_container (subnet, buffer_short_since, number)
  WHERE buffer_short_since IS NOT NULL;
CREATE INDEX network_container_third_party ON network_container (subnet, number) WHERE third_party;
CREATE TABLE block (
  subnet INTEGER NOT NULL REFERENCES subnet,
  number INTEGER NOT NULL,
  ready INTEGER,
  slots BLOB NOT NULL,
  PRIMARY KEY (subnet, number)
) STRICT;
CREATE INDEX block_ready ON block (subnet, ready, number) WHERE ready IS NOT NULL;
CREATE TABLE event (
  number INTEGER PRIMARY KEY,
  revision INTEGER NOT NULL,
  at REAL NOT NULL,
  cluster TEXT NOT NULL,
  kind TEXT NOT NULL,
  events TEXT NOT NULL
) STRICT;
CREATE INDEX event_revision ON event (revision);
CREATE TABLE membership (
  cluster TEXT NOT NULL,
  network TEXT NOT NULL,
  subnet TEXT NOT NULL,
  PRIMARY KEY (cluster, network, subnet)
) STRICT, WITHOUT ROWID;
CREATE TABLE pending_inventory (
  network TEXT NOT NULL,
  subnet TEXT NOT NULL,
  cluster TEXT NOT NULL,
  PRIMARY KEY (network, subnet, cluster)
) STRICT, WITHOUT ROWID;
CREATE TABLE ownership_conflict (
  subnet INTEGER NOT NULL REFERENCES subnet,
  address TEXT NOT NULL,
  holder INTEGER NOT NULL REFERENCES network_container,
  claimant INTEGER NOT NULL REFERENCES network_container,
  "grant" BLOB NOT NULL,
  PRIMARY KEY (subnet, address, claimant)
) STRICT, WITHOUT ROWID;
-- 0002_tokens_and_history.sql
CREATE TABLE token (
  id TEXT PRIMARY KEY,
  row TEXT NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX network_container_subnet ON network_container (subnet, number) WHERE NOT closed;
ALTER TABLE event ADD COLUMN unindexed INTEGER NOT NULL DEFAULT 1;
CREATE INDEX event_unindexed ON event (number) WHERE unindexed;
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
CREATE INDEX allocation_period_address ON allocation_period (address, since);
CREATE INDEX allocation_period_node ON allocation_period (node, since);
CREATE INDEX allocation_period_open ON allocation_period (network, address) WHERE until IS NULL;
CREATE INDEX allocation_period_nc ON allocation_period (nc_id) WHERE until IS NULL;
CREATE INDEX allocation_period_until ON allocation_period (until) WHERE until IS NOT NULL;
CREATE TABLE pod_usage (
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
-- 0003_pod_usage_indexes.sql
ALTER TABLE pod_usage ADD COLUMN node TEXT NOT NULL DEFAULT '';
CREATE INDEX pod_usage_name ON pod_usage (name, since);
CREATE INDEX pod_usage_node ON pod_usage (node, since);
CREATE INDEX pod_usage_address ON pod_usage (address, since);
-- 0004_cooldown_levels_rows.sql
UPDATE subnet SET row = json_remove(
  json_set(
    row,
    '$.spec.cooldown_roomy', max(json_extract(row, '$.spec.cooldown'), 130.0),
    '$.spec.cooldown_filling', json_extract(row, '$.spec.cooldown'),
    '$.spec.cooldown_exhausted',
    min(coalesce(json_extract(row, '$.spec.cooldown_exhausted'), 5.0), json_extract(row, '$.spec.cooldown'))
  ),
  '$.spec.cooldown'
) WHERE json_extract(row, '$.spec.cooldown') IS NOT NULL;
UPDATE subnet SET row = json_set(row, '$.network_containers', counted.ncs)
FROM (
  SELECT subnet.number, count(nc.number) AS ncs
  FROM subnet LEFT JOIN network_container AS nc ON nc.subnet = subnet.number AND NOT nc.closed
  GROUP BY subnet.number
) AS counted
WHERE counted.number = subnet.number AND json_extract(row, '$.network_containers') IS NOT counted.ncs;
-- 0005_ledger_time.sql
CREATE TABLE ledger_time (
  one INTEGER PRIMARY KEY CHECK (one = 1),
  row TEXT NOT NULL
) STRICT;
-- 0006_audit_log.sql
CREATE TABLE audit_log (
  number INTEGER PRIMARY KEY,
  at REAL NOT NULL,
  token TEXT NOT NULL,
  token_id TEXT NOT NULL,
  action TEXT NOT NULL,
  object TEXT NOT NULL,
  result TEXT NOT NULL
) STRICT;
-- 0007_shards.sql
CREATE TABLE shard (
  network TEXT PRIMARY KEY,
  revision INTEGER NOT NULL,
  epoch INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
INSERT INTO shard SELECT '', revision, epoch FROM ledger;
INSERT INTO shard SELECT used.network, revision, epoch FROM ledger, (
  SELECT network FROM subnet UNION SELECT network FROM membership UNION SELECT network FROM pending_inventory
) AS used;
DROP TABLE ledger;
ALTER TABLE cluster RENAME TO former_cluster;
CREATE TABLE cluster (
  network TEXT NOT NULL,
  id TEXT NOT NULL,
  row TEXT NOT NULL,
  PRIMARY KEY (network, id)
) STRICT, WITHOUT ROWID;
INSERT INTO cluster
SELECT used.network, former.id, json_set(former.row, '$.network', used.network)
FROM former_cluster AS former JOIN (
  SELECT cluster, network FROM membership
  UNION SELECT cluster, network FROM pending_inventory
  UNION SELECT nc.cluster, subnet.network FROM network_container AS nc JOIN subnet ON subnet.number = nc.subnet
) AS used ON used.cluster = former.id;
DROP TABLE former_cluster;
ALTER TABLE event ADD COLUMN network TEXT NOT NULL DEFAULT '';
DROP INDEX event_unindexed;
CREATE INDEX event_unindexed ON event (network, number) WHERE unindexed;
