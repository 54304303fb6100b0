"""Children that follow the contract with the plugin and do nothing else."""
