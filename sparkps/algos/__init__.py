"""Worker loops of the algorithms, over table handles and numpy alone: no Spark here, so each is
tested without a JVM.
"""
