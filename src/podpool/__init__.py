"""podpool gives every Kubernetes Pod an address from a scarce subnet, and takes back the ones nobody uses."""

__version__ = "0.1.0"
