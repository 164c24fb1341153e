"""Measurements of pipelines on Spark."""
