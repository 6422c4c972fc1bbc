-- Each network has its own revision, epoch, terms and recovery: it is a shard. '' stands for what has no network.
-- Replicas of an earlier version would write beside the shards: without table ledger their commits fail.

CREATE TABLE shard (
  network text PRIMARY KEY,
  revision bigint NOT NULL,
  epoch bigint NOT NULL,
  commit_token bigint NOT NULL, -- random, new for each commit: a replica that finds its own knows that no other wrote
  commits bigint NOT NULL, -- number of commits
  last_nc bigint NOT NULL, -- the highest number assigned to a network container, and the last of the reserved ones
  reserved_nc bigint NOT NULL,
  system_identifier bigint, -- rollback detection: server and timeline of the last commit
  timeline bigint
) WITH (fillfactor = 10);
INSERT INTO shard SELECT '', revision, epoch, commit_token, 0, 0, 0, system_identifier, timeline FROM ledger;
INSERT INTO shard
SELECT used.network, revision, epoch, commit_token, 0, 0, 0, system_identifier, timeline FROM ledger, (
  SELECT network FROM subnet UNION SELECT network FROM membership UNION SELECT network FROM pending_inventory
) AS used;

-- numbers are never reused; those of network containers are reserved 256 at a time
CREATE SEQUENCE subnet_number;
CREATE SEQUENCE nc_range;
SELECT setval('subnet_number', last_subnet + 1, false), setval('nc_range', last_nc / 256 + 1, false) FROM ledger;
DROP TABLE ledger;

DROP TABLE commit_change;
CREATE TABLE network_commit ( -- keys of the rows changed by the last commits, to refresh the row caches of replicas
  network text NOT NULL,
  number bigint NOT NULL,
  commit_token bigint NOT NULL,
  changed_keys text NOT NULL,
  PRIMARY KEY (network, number)
);

ALTER TABLE cluster RENAME TO former_cluster;
ALTER INDEX cluster_pkey RENAME TO former_cluster_pkey;
CREATE TABLE cluster ( -- a cluster in one of its networks
  network text NOT NULL,
  id text NOT NULL,
  row text NOT NULL,
  PRIMARY KEY (network, id)
) WITH (fillfactor = 50);
INSERT INTO cluster
SELECT used.network, former.id, jsonb_set(former.row::jsonb, '{network}', to_jsonb(used.network))::text
FROM former_cluster AS former JOIN (
  SELECT cluster, network FROM membership
  UNION SELECT cluster, network FROM pending_inventory
  UNION SELECT nc.cluster, subnet.network FROM network_container AS nc JOIN subnet ON subnet.number = nc.subnet
) AS used ON used.cluster = former.id;
DROP TABLE former_cluster;

ALTER TABLE event ADD COLUMN network text NOT NULL DEFAULT ''; -- '' for the calls of an earlier version
DROP INDEX event_unindexed;
CREATE INDEX event_unindexed ON event (network, number) WHERE unindexed = 1;
