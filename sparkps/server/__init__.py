"""The server program: a pure core that holds partitions and answers, and a thin shell around it."""
