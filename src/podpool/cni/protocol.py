"""The protocol between plugin and agent, and the CNI types that the runtime sends and reads.

**Between plugin and agent** one frame goes each way: the body's length (four bytes, big-endian) and the body, at most
1 MiB. The body of a request is the protocol's name, the values of CNI_COMMAND, CNI_CONTAINERID, CNI_NETNS, CNI_IFNAME,
CNI_ARGS and CNI_PATH, each followed by a NUL, and then stdin unchanged. The body of a response is the exit code in one
byte, and then stdout. `shim.c` and `python_plugin.py` implement the same: a change must be made in all three, with a
new protocol name.

**For the runtime** the result of an ADD has the form of its CNI version:

| version | result |
|---|---|
| 0.1.0, 0.2.0 | `ip4` and `ip6`, each with its own routes |
| 0.3.0, 0.3.1, 0.4.0 | `ips`, each with its IP version; `routes` beside them |
| 1.0.0, 1.1.0 | the same without the IP version |
"""

import enum
import functools
import re
import struct
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import msgspec

from podpool.core.addresses import Address, Family, parse_address
from podpool.core.errors import InvalidInput, PodpoolError, quoted

PROTOCOL = b"podpool/1"
MAX_BODY = 1 << 20
"""A network configuration takes a few kilobytes, the attachment list of a GC a few hundred."""

VERSIONS = ("0.1.0", "0.2.0", "0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0")
OLDEST_VERSION = VERSIONS[0]
"""The version of a configuration that states none; libcni writes an empty one for it."""
COMMAND_SINCE = {"CHECK": "0.4.0", "GC": "1.1.0", "STATUS": "1.1.0"}
"""The CNI version that introduced a command; commands not listed exist in every version."""
DEFAULT_ROUTES = {Family.V4: "0.0.0.0/0", Family.V6: "::/0"}

MAX_VARIABLE = 8192
"""Bytes of one variable: an argument list or a search path takes a few hundred."""
MAX_NAME = 255
"""Characters of a container ID or network name, which go into records and file names."""
MAX_IFNAME = 15
"""Characters of an interface name in Linux."""

_LENGTH = struct.Struct("!I")
HEADER_SIZE = _LENGTH.size
_VARIABLES = ("CNI_COMMAND", "CNI_CONTAINERID", "CNI_NETNS", "CNI_IFNAME", "CNI_ARGS", "CNI_PATH")
_CONTAINER_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")
_IFNAME = re.compile(r"(?!\.{1,2}$)[^/:\s]+")
_UNDECODABLE = (ValueError, RecursionError)
"""What decoding of arbitrary JSON raises; msgspec's errors are ValueErrors."""


class PluginRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One call of the plugin: the environment variables and stdin that the runtime passed."""

    command: str
    container_id: str = ""
    netns: str = ""
    ifname: str = ""
    args: str = ""
    path: str = ""
    stdin: bytes = b""

    def arguments(self) -> Mapping[str, str]:
        """Parse CNI_ARGS, such as `K8S_POD_NAMESPACE=default;K8S_POD_NAME=web-0`; malformed pairs are skipped."""
        return _parse_arguments(self.args)


@functools.lru_cache(maxsize=16)  # each request needs them several times
def _parse_arguments(text: str) -> Mapping[str, str]:
    pairs = (pair.partition("=") for pair in text.split(";"))
    return MappingProxyType({name: value for name, equals, value in pairs if equals})


class PluginResponse(msgspec.Struct, frozen=True):
    """What the plugin prints to stdout, and its exit code."""

    stdout: bytes = b""
    exit_code: int = 0


class BadFrame(PodpoolError):
    """The bytes are not a frame of this protocol: plugin and agent are of different versions."""


def encode_frame(body: bytes) -> bytes:
    """Return the body prefixed with its length."""
    if len(body) > MAX_BODY:
        raise BadFrame(f"a frame of {len(body)} bytes exceeds the limit of {MAX_BODY} bytes")
    return _LENGTH.pack(len(body)) + body


def decode_length(data: bytes) -> int | None:
    """Return the length of the body that follows, or None if the header is incomplete."""
    if len(data) < _LENGTH.size:
        return None
    (length,) = _LENGTH.unpack_from(data)
    if length > MAX_BODY:
        raise BadFrame(f"a frame of {length} bytes exceeds the limit of {MAX_BODY} bytes")
    return int(length)


def encode_request(request: PluginRequest) -> bytes:
    """Encode the body of a request."""
    values = (request.command, request.container_id, request.netns, request.ifname, request.args, request.path)
    for value in values:
        if "\0" in value:
            raise InvalidInput("CNI variable", value, "must not contain NUL")
    encoded = [value.encode("utf-8", "surrogateescape") for value in values]  # as the runtime's bytes were
    return b"\0".join([PROTOCOL, *encoded, request.stdin])


def decode_request(body: bytes) -> PluginRequest:
    """Decode the body of a request; raises `BadFrame`, and `CniError` for a variable that is not text."""
    protocol, *values = body.split(b"\0", len(_VARIABLES) + 1)
    if protocol != PROTOCOL or len(values) != len(_VARIABLES) + 1:
        raise BadFrame(f"not a {PROTOCOL.decode()} request: reinstall the plugin with `podpool cni install`")
    *encoded, stdin = values
    command, container_id, netns, ifname, args, path = map(_decode_variable, _VARIABLES, encoded)
    return PluginRequest(
        command=command, container_id=container_id, netns=netns, ifname=ifname, args=args, path=path, stdin=stdin
    )


def _decode_variable(name: str, value: bytes) -> str:
    if len(value) > MAX_VARIABLE:
        raise CniError(ErrorCode.INVALID_ENVIRONMENT, f"{name} has {len(value)} bytes, the limit is {MAX_VARIABLE}")
    try:
        return value.decode()
    except UnicodeDecodeError:
        raise CniError(ErrorCode.INVALID_ENVIRONMENT, f"{name} {quoted(value)} is not UTF-8") from None


def encode_response(response: PluginResponse) -> bytes:
    """Encode the body of a response."""
    return bytes([response.exit_code]) + response.stdout


def decode_response(body: bytes) -> PluginResponse:
    """Decode the body of a response; raises `BadFrame`."""
    if not body:
        raise BadFrame("the response is empty")
    return PluginResponse(stdout=body[1:], exit_code=body[0])


class ErrorCode(enum.IntEnum):
    """CNI error codes that podpool returns."""

    INCOMPATIBLE_VERSION = 1
    INVALID_ENVIRONMENT = 4
    IO_FAILURE = 5
    DECODE_FAILURE = 6
    INVALID_CONFIG = 7
    TRY_AGAIN_LATER = 11
    UNAVAILABLE = 50
    CHECK_MISMATCH = 100
    """Specific to podpool (100 and above): CHECK found other addresses than ADD assigned."""
    INTERNAL = 999
    """As in libcni: an error that should not occur."""


class CniError(PodpoolError):
    """An error for the runtime, shown in the Events of the Pod that does not start."""

    def __init__(self, code: ErrorCode, message: str, details: str = "") -> None:
        super().__init__(f"{message} ({details})" if details else message)
        self.code = code
        self.message = message
        self.details = details


class NetConf(msgspec.Struct, frozen=True, rename="camel"):
    """The network configuration: the fields that an IPAM plugin reads."""

    stated_version: str | None = msgspec.field(name="cniVersion", default=None)
    """As written: use `cni_version`."""
    name: str = ""
    prev_result: msgspec.Raw = msgspec.Raw(b"{}")
    valid_attachments: tuple["Attachment", ...] | msgspec.UnsetType | None = msgspec.field(
        name="cni.dev/valid-attachments", default=msgspec.UNSET
    )
    """What a GC must keep. libcni writes an empty list as null; unset if the configuration does not have it."""

    @property
    def cni_version(self) -> str:
        """The CNI version."""
        return self.stated_version or OLDEST_VERSION


class Attachment(msgspec.Struct, frozen=True):
    """One interface of one sandbox; in a GC, one that still exists."""

    container_id: str = msgspec.field(name="containerID", default="")
    ifname: str = ""


class PrevResultIP(msgspec.Struct, frozen=True):
    """An address in `prevResult`."""

    address: str = ""


class PrevResult(msgspec.Struct, frozen=True):
    """The result of an earlier plugin or of ADD, in the form since 0.3.0: the fields that are read."""

    ips: tuple[PrevResultIP, ...] = ()


class IPConfig(msgspec.Struct, frozen=True, kw_only=True):
    """An assigned address with prefix length and gateway, as in the `ips` of a CNI result."""

    address: Address
    prefix: int
    gateway: str = ""


def parse_config(stdin: bytes, *, command: str = "ADD") -> NetConf:
    """Parse the configuration; raises `CniError`, also when its version does not define the command."""
    try:
        config = msgspec.json.decode(stdin, type=NetConf)
    except _UNDECODABLE as error:
        raise CniError(ErrorCode.DECODE_FAILURE, "the network configuration cannot be read", str(error)) from error
    version = config.cni_version
    if version not in VERSIONS:
        supported = f"supported: {', '.join(VERSIONS)}"
        raise CniError(ErrorCode.INCOMPATIBLE_VERSION, f"CNI version {quoted(version)} is not supported", supported)
    since = COMMAND_SINCE.get(command, OLDEST_VERSION)
    if VERSIONS.index(version) < VERSIONS.index(since):
        message = f"{command} requires CNI {since} or later, the configuration has version {version}"
        raise CniError(ErrorCode.INCOMPATIBLE_VERSION, message)
    if len(config.name) > MAX_NAME:
        message = f"name {quoted(config.name)} has more than {MAX_NAME} characters"
        raise CniError(ErrorCode.INVALID_CONFIG, message)
    return config


def parse_attachment(request: PluginRequest) -> "Attachment":
    """Return the interface of a request; raises `CniError` for names that the CNI specification does not allow."""
    container_id, ifname = request.container_id, request.ifname
    for variable, value in (("CNI_CONTAINERID", container_id), ("CNI_IFNAME", ifname)):
        if not value:
            raise CniError(ErrorCode.INVALID_ENVIRONMENT, f"{variable} is not set")
    if len(container_id) > MAX_NAME or not _CONTAINER_ID.fullmatch(container_id):
        rule = f"must be up to {MAX_NAME} letters, digits, '_', '.' and '-', and start with a letter or digit"
        raise CniError(ErrorCode.INVALID_ENVIRONMENT, f"CNI_CONTAINERID {quoted(container_id)} {rule}")
    if len(ifname) > MAX_IFNAME or not _IFNAME.fullmatch(ifname):
        rule = f"must be up to {MAX_IFNAME} characters without '/', ':' and spaces"
        raise CniError(ErrorCode.INVALID_ENVIRONMENT, f"CNI_IFNAME {quoted(ifname)} {rule}")
    return Attachment(container_id=container_id, ifname=ifname)


def prev_result_addresses(config: NetConf) -> list[str]:
    """Return the addresses in the configuration's `prevResult`; raises `CniError`."""
    try:
        result = msgspec.json.decode(config.prev_result, type=PrevResult)
    except _UNDECODABLE as error:
        raise CniError(ErrorCode.DECODE_FAILURE, "prevResult cannot be read", str(error)) from error
    return [_normalized(each.address.partition("/")[0]) for each in result.ips]


def _normalized(address: str) -> str:
    """Return the canonical form of an address, or the text itself if it is not an address."""
    try:
        return str(parse_address(address))
    except InvalidInput:
        return address


class _Version(msgspec.Struct, frozen=True, rename="camel"):
    cni_version: str | None = None


def requested_version(stdin: bytes) -> str:
    """Return the version in which to report an error, even if the rest of the configuration is invalid."""
    try:
        version = msgspec.json.decode(stdin, type=_Version).cni_version
    except _UNDECODABLE:
        return OLDEST_VERSION
    return version if version in VERSIONS else OLDEST_VERSION


class ResultExtras(msgspec.Struct, frozen=True, kw_only=True):
    """Routes and DNS of a result. Without routes each family with a gateway gets a default route."""

    routes: Sequence[Mapping[str, Any]] | None = None
    dns: Mapping[str, Any] = {}


def add_result(
    ips: Sequence[IPConfig],
    version: str,
    *,
    extras: ResultExtras = ResultExtras(),  # noqa: B008  frozen
) -> PluginResponse:
    """Return the result of an ADD in the form of its version; the oldest form has one address per family."""
    result: dict[str, Any] = {"cniVersion": version}
    routes = _default_routes(ips) if extras.routes is None else [dict(each) for each in extras.routes]
    if version in ("0.1.0", "0.2.0"):
        for ip in ips:
            v6 = ip.address.family is Family.V6
            own = [each for each in routes if (":" in str(each["dst"])) is v6]
            entry = {"ip": f"{ip.address}/{ip.prefix}", **_gateway(ip), "routes": own}
            result.setdefault(f"ip{ip.address.family}", entry)
    else:
        result["ips"] = [
            {
                **({"version": str(int(ip.address.family))} if version.startswith("0.") else {}),
                "address": f"{ip.address}/{ip.prefix}",
                **_gateway(ip),
            }
            for ip in ips
        ]
        result["routes"] = routes
    return PluginResponse(msgspec.json.encode({**result, "dns": extras.dns}))


def _gateway(ip: IPConfig) -> dict[str, str]:
    return {"gateway": ip.gateway} if ip.gateway else {}


def _default_routes(ips: Sequence[IPConfig]) -> list[dict[str, str]]:
    """Return one default route for each family that has a gateway."""
    families = dict.fromkeys(ip.address.family for ip in ips if ip.gateway)
    return [{"dst": DEFAULT_ROUTES[family]} for family in families]


def version_result() -> PluginResponse:
    """Return the result of VERSION."""
    return PluginResponse(msgspec.json.encode({"cniVersion": VERSIONS[-1], "supportedVersions": VERSIONS}))


def error_result(error: CniError, version: str) -> PluginResponse:
    """Return an error result; its form is the same in every version."""
    result = {"cniVersion": version, "code": int(error.code), "msg": error.message}
    if error.details:
        result["details"] = error.details
    return PluginResponse(msgspec.json.encode(result), exit_code=1)
