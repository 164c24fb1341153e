"""Typed settings in one table, from which validation, DescribeConfigs and the settings page are
made.
"""
