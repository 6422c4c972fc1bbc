-- A Pod's past is found by its name, its node and its address: also in networks that the ledger does not manage.

ALTER TABLE pod ADD COLUMN node TEXT NOT NULL DEFAULT ''; -- not known of those that were reported before
CREATE INDEX pod_name ON pod (name, since);
CREATE INDEX pod_node ON pod (node, since);
CREATE INDEX pod_address ON pod (address, since);
