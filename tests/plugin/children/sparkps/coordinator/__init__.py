"""A coordinator that writes down what it is told."""
