"""Default paths on a node. `shim.c` and `python_plugin.py` contain the first two as well."""

SOCKET = "/run/podpool/agent.sock"
DELETES = "/run/podpool/deletes"
BIN_DIR = "/opt/cni/bin"
CONF_DIR = "/etc/cni/net.d"
