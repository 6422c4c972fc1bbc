"""NetworkAttachmentDefinition (NAD) of `k8s.cni.cncf.io`, in which Multus keeps a CNI configuration; only read."""

from podpool.api.meta import ApiStruct, Kind, KubeObject


class NetworkAttachmentSpec(ApiStruct, frozen=True, kw_only=True):
    """Spec of a NAD."""

    config: str = ""
    """CNI configuration or configuration list, as JSON."""


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
