"""The schema tables, one module per API, named after it; import only the ones that are needed.

Structures have Kafka's names. Where a request and its response each have one of the same name, but
not with the same fields, the two begin with `Request` and `Response` here.
"""
