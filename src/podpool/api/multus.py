"""The object of `k8s.cni.cncf.io` in which Multus keeps a network's CNI configuration. We only read it."""

from podpool.api.meta import ApiStruct, Kind, KubeObject


class NetworkAttachmentSpec(ApiStruct, frozen=True, kw_only=True):
    """What is to be configured."""

    config: str = ""
    """A CNI configuration, or a list of them, as JSON."""


class NetworkAttachmentDefinition(KubeObject, frozen=True, kw_only=True):
    """A network that Pods can be attached to."""

    spec: NetworkAttachmentSpec = NetworkAttachmentSpec()


NETWORK_ATTACHMENTS = Kind(
    group="k8s.cni.cncf.io",
    version="v1",
    plural="network-attachment-definitions",
    kind="NetworkAttachmentDefinition",
    type=NetworkAttachmentDefinition,
)
