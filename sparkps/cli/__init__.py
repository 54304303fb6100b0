"""The command line: ``python -m sparkps conf | cluster | doctor | settings``."""
