"""The client: table handles, workers and the training loop, over one connection per server."""
