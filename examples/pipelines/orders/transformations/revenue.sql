-- What has been ordered by country, computed anew by each run.
CREATE MATERIALIZED VIEW revenue AS
SELECT country, count(*) AS orders, sum(amount) AS amount
FROM all_orders
GROUP BY country
