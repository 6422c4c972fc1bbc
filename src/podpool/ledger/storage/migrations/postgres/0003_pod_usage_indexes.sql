-- Queries by Pod name, node or address, also in networks that the ledger does not manage.

ALTER TABLE pod_usage ADD COLUMN node text NOT NULL DEFAULT ''; -- unknown for rows written before
CREATE INDEX pod_usage_name ON pod_usage (name, since);
CREATE INDEX pod_usage_node ON pod_usage (node, since);
CREATE INDEX pod_usage_address ON pod_usage (address, since);
