-- Each network has its own revision, epoch, terms and recovery: it is a shard. '' stands for what has no network.

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
CREATE TABLE cluster ( -- a cluster in one of its networks
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

ALTER TABLE event ADD COLUMN network TEXT NOT NULL DEFAULT ''; -- '' for the calls of an earlier version
DROP INDEX event_unindexed;
CREATE INDEX event_unindexed ON event (network, number) WHERE unindexed;
