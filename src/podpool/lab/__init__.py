"""Everything that runs without a cluster: the lite API server, the simulator and the demo."""
