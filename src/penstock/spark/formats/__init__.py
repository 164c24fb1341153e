"""Formats of keys and values: what the bytes of a topic mean, as columns of a DataFrame.

| format | column | schema |
|---|---|---|
| `raw` | binary, as it is | none |
| `string` | string, UTF-8 | none |
| `json` | what the schema says | DDL (`id long, at timestamp`), Spark's JSON or a DataType |
| `avro` | what the schema says | Avro's JSON; the bytes are one datum, without a file around it |
| `avro-confluent` | as `avro` | as `avro`; before it are 5 bytes of a schema registry's client |
| `avro-confluent:ID` | as `avro` | the same, and only values that were written with schema ID |

A schema that begins with `@` is the path of a file that holds it; `infer` and `infer_topic` find
that of JSON. `decode` gives null for what
cannot be decoded, `decode_checked` the reason beside it, and `decode_rows` fails the query and says
where the row is. A key or value that is null is null in every format, and no error.

Limits: no schema registry is asked. With `avro-confluent` the schema that is given reads every
value, whatever id it carries; name the ID where a topic has values of several.
"""

from penstock.spark.formats.columns import decode, decode_checked, decode_rows, encode
from penstock.spark.formats.json_text import infer, infer_topic

__all__ = ["decode", "decode_checked", "decode_rows", "encode", "infer", "infer_topic"]
