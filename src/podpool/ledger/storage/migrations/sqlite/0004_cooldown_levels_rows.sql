-- The single cooldown becomes the filling level, and subnets count their open network containers. A default is not stored.

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
