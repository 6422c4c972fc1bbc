"""Secondary networks: addresses from the node's slice of a range, or from a range that all nodes share."""
