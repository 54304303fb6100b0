"""Estimators that follow pyspark.ml: change one import and fit on the servers. File names are
pyspark.ml's own.
"""
