-- The single cooldown becomes the filling level, and subnets count their open network containers. A default is not stored.

-- replicas of an earlier version would drop the new fields: without this table their commits fail
ALTER TABLE IF EXISTS change RENAME TO commit_change;

UPDATE subnet SET row = (
  jsonb_set(
    row::jsonb,
    '{spec}',
    (row::jsonb -> 'spec') - 'cooldown' || jsonb_build_object(
      'cooldown_roomy', greatest((row::jsonb #>> '{spec,cooldown}')::double precision, 130),
      'cooldown_filling', (row::jsonb #>> '{spec,cooldown}')::double precision,
      'cooldown_exhausted',
      least(
        coalesce((row::jsonb #>> '{spec,cooldown_exhausted}')::double precision, 5),
        (row::jsonb #>> '{spec,cooldown}')::double precision
      )
    )
  )
)::text WHERE row::jsonb -> 'spec' ? 'cooldown';

UPDATE subnet SET row = jsonb_set(row::jsonb, '{network_containers}', to_jsonb(counted.ncs))::text
FROM (
  SELECT subnet.number, count(nc.number) AS ncs
  FROM subnet LEFT JOIN network_container AS nc ON nc.subnet = subnet.number AND nc.closed = 0
  GROUP BY subnet.number
) AS counted
WHERE counted.number = subnet.number AND row::jsonb -> 'network_containers' IS DISTINCT FROM to_jsonb(counted.ncs);
