"""Tables of records: what the ready pipelines archive, replay and audit need beyond PySpark.

A table is a folder of Parquet files by date and hour with a log of commits, in one of three formats
(`parquet`, `delta`, `iceberg`) behind one small interface (`table.Table`). Executors write data
files (`staging`), the driver commits them (`append`, `compact`); everybody reads the files that the
last commit names (`rows`). `audit` compares, `report` shows.

Limits: the folder lies on a file system that driver and executors share, or on an object store
(`remote`), as a Delta table or one of an Iceberg catalog (`catalog_table`).
"""
