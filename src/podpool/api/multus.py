"""The object of `k8s.cni.cncf.io` in which Multus keeps a network's CNI configuration. We only read it."""

from podpool.api.meta import Kind, Object, Slim


class AttachmentSpec(Slim, frozen=True, kw_only=True):
    """What is to be configured."""

    config: str = ""
    """A CNI configuration, or a list of them, as JSON."""


class NetworkAttachmentDefinition(Object, frozen=True, kw_only=True):
    """A network that Pods can be attached to."""

    spec: AttachmentSpec = AttachmentSpec()


ATTACHMENTS = Kind(
    group="k8s.cni.cncf.io",
    version="v1",
    plural="network-attachment-definitions",
    kind="NetworkAttachmentDefinition",
    type=NetworkAttachmentDefinition,
)
