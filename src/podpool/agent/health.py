"""Health checks of the agent, and log lines about its Node: it is missing, or is of another machine."""

from collections.abc import Sequence

from podpool.agent.deps import AgentDeps
from podpool.agent.informers import AgentInformers
from podpool.agent.state import AgentState
from podpool.runtime.process import HealthCheck


class AgentHealth:
    """Reads state and informers on demand."""

    def __init__(self, deps: AgentDeps, state: AgentState, informers: AgentInformers) -> None:
        self._deps = deps
        self._state = state
        self._node = informers.node
        self._logged = ""

    def checks(self, not_ready: str | None, *, proxy: str | None, runtime: str) -> Sequence[HealthCheck]:
        """Return the checks of `/readyz`: `not_ready` is why no address can be assigned, `runtime` is only noted.

        `proxy` is why the kernel does not answer for Pods on the uplink; None without an uplink.
        """
        return (
            HealthCheck("journal", self._state.write_error or ("" if self._state.opened else "it is not open yet")),
            HealthCheck("node", self.node_failure()),
            HealthCheck("addresses", not_ready or ""),
            *(() if proxy is None else (HealthCheck("uplink", proxy),)),
            HealthCheck("runtime", note=runtime),
        )

    def node_failure(self) -> str:
        """Return why this machine's Node is not known; empty if it is."""
        name, boot_id = self._deps.node, self._deps.boot_id
        if not self._node.synced:
            return f"Node {name} has not been read yet: check that the agent reaches the API server (--kubeconfig)"
        node = self._node.object
        if node is None:
            return f"Node {name} does not exist: check --node, and that the kubelet has registered it"
        if node.boot_id != boot_id:
            found = f"boot ID {node.boot_id}" if node.boot_id else "no boot ID yet"
            return f"Node {name} reports {found}, and this machine has {boot_id}: check --node and --boot-id"
        return ""

    def on_node(self) -> None:
        """Log a change of the Node: missing, of another machine, or found."""
        failure = self.node_failure()
        if failure and failure != self._logged:
            self._deps.log.warning(
                "Node of this machine not found, no new address is assigned after the fence time",
                reason=failure,
            )
        elif self._logged and not failure:
            self._deps.log.info("Node of this machine found")
        self._logged = failure
