"""Orders as JSON from a topic: good ones to a topic and a table, bad ones to another topic."""

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

spark = SparkSession.active()
BROKERS = {"kafka.bootstrap.servers": spark.conf.get("kafka.bootstrap.servers")}
IS_GOOD = "parsed.id is not null and parsed.amount > 0"

dp.create_sink("checked_topic", "penstock", {**BROKERS, "topic": spark.conf.get("to")})
dp.create_sink("refused_topic", "penstock", {**BROKERS, "topic": spark.conf.get("refused")})


@dp.temporary_view
def orders() -> DataFrame:
    parsed = sf.from_json(
        sf.col("value").cast("string"), "id string, country string, amount double"
    )
    return (
        spark.readStream.format("penstock")
        .options(**BROKERS)
        .option("subscribe", spark.conf.get("topic"))
        .option("startingOffsets", "earliest")
        .load()
        .select("value", parsed.alias("parsed"))
    )


@dp.append_flow(target="checked_topic")
def good_orders() -> DataFrame:
    good = spark.readStream.table("orders").where(IS_GOOD)
    return good.select(sf.col("parsed.id").alias("key"), sf.to_json("parsed").alias("value"))


@dp.append_flow(target="refused_topic")
def bad_orders() -> DataFrame:
    bad = spark.readStream.table("orders").where(f"not coalesce({IS_GOOD}, false)")
    return bad.select("value")


@dp.table
def all_orders() -> DataFrame:
    return spark.readStream.table("orders").where(IS_GOOD).select("parsed.*")
