"""Where things are on a node, unless somebody says otherwise. `shim.c` and `plain.py` know the first two as well."""

SOCKET = "/run/podpool/agent.sock"
DELETES = "/run/podpool/deletes"
BIN_DIR = "/opt/cni/bin"
CONF_DIR = "/etc/cni/net.d"
