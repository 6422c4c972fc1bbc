"""IP address management (IPAM) for Kubernetes Pods in scarce subnets."""

__version__ = "0.1.0"
