"""The Spark side: the driver's context, runs, batches of rows, tables as DataFrames.

This package is the only one below ``sparkps.ml`` that imports pyspark. What runs inside tasks
stands in ``task``, ``rows``, ``prepared`` and ``batches``; the other modules belong to the driver.
"""
