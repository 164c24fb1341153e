"""The schema tables, one module per API, named after it; import only the ones that are needed."""
