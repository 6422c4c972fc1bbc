"""What a runtime says to the plugin, the plugin to the agent, and the agent back.

**Between plugin and agent** one frame goes each way: its length (four bytes, the highest first) and its body, 1 MiB at
most. The body of a request is the name of this protocol, the values of CNI_COMMAND, CNI_CONTAINERID, CNI_NETNS,
CNI_IFNAME, CNI_ARGS and CNI_PATH, each ended by a NUL, and then stdin as it is. The body of an answer is the exit code
in one byte, and then stdout. `shim.c` knows the same: whoever changes one changes both, and the name of the protocol.

**For the runtime** the result of an ADD has the form of its CNI version:

| version | result |
|---|---|
| 0.1.0, 0.2.0 | `ip4` and `ip6`, each with its own routes |
| 0.3.0, 0.3.1, 0.4.0 | `ips`, each with its IP version; `routes` beside them |
| 1.0.0, 1.1.0 | the same without the IP version |
"""

import enum
import struct
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from podpool.core.addresses import Address, Family, parse_address
from podpool.core.errors import InvalidInput, PodpoolError

PROTOCOL = b"podpool/1"
LARGEST_BODY = 1 << 20
"""A runtime's configuration is a few kilobytes; the list of all attachments that a GC carries is a few hundred."""

VERSIONS = ("0.1.0", "0.2.0", "0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0")
OLDEST = VERSIONS[0]
"""A configuration without a version means this one."""
SINCE = {"CHECK": "0.4.0", "GC": "1.1.0", "STATUS": "1.1.0"}
"""Commands that came later than the first."""
DEFAULT_ROUTES = {Family.V4: "0.0.0.0/0", Family.V6: "::/0"}

_LENGTH = struct.Struct("!I")
_VALUES = 6


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """One call of the plugin, as the runtime made it."""

    command: str
    container_id: str = ""
    netns: str = ""
    ifname: str = ""
    args: str = ""
    path: str = ""
    stdin: bytes = b""

    def arguments(self) -> dict[str, str]:
        """Read CNI_ARGS: `K8S_POD_NAMESPACE=default;K8S_POD_NAME=web-0`; what is no pair is skipped."""
        pairs = (pair.partition("=") for pair in self.args.split(";"))
        return {name: value for name, equals, value in pairs if equals}


class Answer(msgspec.Struct, frozen=True):
    """What the plugin prints, and how it ends."""

    stdout: bytes = b""
    exit_code: int = 0


class BadFrame(PodpoolError):
    """The bytes are not a frame of ours: the other side is not a podpool of this version."""


def framed(body: bytes) -> bytes:
    """Put the length before a body."""
    if len(body) > LARGEST_BODY:
        raise BadFrame(f"a frame of {len(body)} bytes is too long: {LARGEST_BODY} is the most")
    return _LENGTH.pack(len(body)) + body


def body_length(start: bytes) -> int | None:
    """Tell the length of the body that follows; None while too little has come to know."""
    if len(start) < _LENGTH.size:
        return None
    (length,) = _LENGTH.unpack_from(start)
    if length > LARGEST_BODY:
        raise BadFrame(f"a frame of {length} bytes is too long: {LARGEST_BODY} is the most")
    return int(length)


HEADER = _LENGTH.size
"""Bytes before the body."""


def encode_request(request: Request) -> bytes:
    """Write the body of a request."""
    values = (request.command, request.container_id, request.netns, request.ifname, request.args, request.path)
    for value in values:
        if "\0" in value:
            raise InvalidInput("CNI variable", value, "must not contain a NUL")
    words = [value.encode("utf-8", "surrogateescape") for value in values]
    return b"\0".join([PROTOCOL, *words, request.stdin])


def decode_request(body: bytes) -> Request:
    """Read the body of a request; raises `BadFrame`."""
    protocol, *values = body.split(b"\0", _VALUES + 1)
    if protocol != PROTOCOL or len(values) != _VALUES + 1:
        raise BadFrame(f"not a request of {PROTOCOL.decode()}: install the plugin again with `podpool cni install`")
    *words, stdin = values
    command, container_id, netns, ifname, args, path = (word.decode("utf-8", "surrogateescape") for word in words)
    return Request(
        command=command, container_id=container_id, netns=netns, ifname=ifname, args=args, path=path, stdin=stdin
    )


def encode_answer(answer: Answer) -> bytes:
    """Write the body of an answer."""
    return bytes([answer.exit_code]) + answer.stdout


def decode_answer(body: bytes) -> Answer:
    """Read the body of an answer; raises `BadFrame`."""
    if not body:
        raise BadFrame("the answer is empty")
    return Answer(stdout=body[1:], exit_code=body[0])


class Code(enum.IntEnum):
    """CNI's error codes, those that we answer with."""

    INCOMPATIBLE_VERSION = 1
    INVALID_ENVIRONMENT = 4
    IO_FAILURE = 5
    DECODE_FAILURE = 6
    INVALID_CONFIG = 7
    TRY_AGAIN_LATER = 11
    UNAVAILABLE = 50
    NOT_AS_ADDED = 100
    """Of our own: a CHECK found something else than what ADD left."""


class CniError(PodpoolError):
    """What a runtime shows to whoever wonders why a Pod does not start."""

    def __init__(self, code: Code, message: str, details: str = "") -> None:
        super().__init__(f"{message} ({details})" if details else message)
        self.code = code
        self.message = message
        self.details = details


class Config(msgspec.Struct, frozen=True, rename="camel"):
    """The network configuration, as far as an address plugin looks at it."""

    cni_version: str = OLDEST
    name: str = ""
    prev_result: msgspec.Raw = msgspec.Raw(b"{}")
    attachments: tuple["Attachment", ...] | None = msgspec.field(name="cni.dev/valid-attachments", default=None)
    """What a GC must keep."""


class Attachment(msgspec.Struct, frozen=True):
    """One interface that a runtime still has."""

    container_id: str = msgspec.field(name="containerID", default="")
    ifname: str = ""


class ShownAddress(msgspec.Struct, frozen=True):
    """An address in the result of an earlier plugin, or of ADD."""

    address: str = ""


class ShownResult(msgspec.Struct, frozen=True):
    """That result, as far as an address plugin looks at it: the form since 0.3.0."""

    ips: tuple[ShownAddress, ...] = ()


class Lease(msgspec.Struct, frozen=True, kw_only=True):
    """An address as a Pod's interface needs it."""

    address: Address
    prefix: int
    gateway: str = ""


def parse_config(stdin: bytes, *, command: str = "ADD") -> Config:
    """Read the configuration of a command that its version knows; raises `CniError`."""
    try:
        config = msgspec.json.decode(stdin, type=Config)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise CniError(Code.DECODE_FAILURE, "the network configuration cannot be read", str(error)) from error
    if config.cni_version not in VERSIONS:
        known = ", ".join(VERSIONS)
        raise CniError(Code.INCOMPATIBLE_VERSION, f"CNI version {config.cni_version!r} is not spoken here", known)
    since = SINCE.get(command, OLDEST)
    if VERSIONS.index(config.cni_version) < VERSIONS.index(since):
        told = f"{command} is part of CNI since {since}, and the configuration has version {config.cni_version}"
        raise CniError(Code.INCOMPATIBLE_VERSION, told)
    return config


def shown_addresses(config: Config) -> list[str]:
    """Read the addresses that a configuration's `prevResult` tells of; raises `CniError`."""
    try:
        shown = msgspec.json.decode(config.prev_result, type=ShownResult)
    except msgspec.DecodeError as error:
        raise CniError(Code.DECODE_FAILURE, "prevResult cannot be read", str(error)) from error
    return [_spelled(each.address.partition("/")[0]) for each in shown.ips]


def _spelled(address: str) -> str:
    """Spell an address as we do; what is none stays as it is."""
    try:
        return str(parse_address(address))
    except InvalidInput:
        return address


def stated_version(stdin: bytes) -> str:
    """Find the version to answer an error in, whatever the rest of the configuration is."""
    try:
        version = msgspec.json.decode(stdin, type=Config).cni_version
    except (msgspec.DecodeError, UnicodeDecodeError):
        return OLDEST
    return version if version in VERSIONS else OLDEST


class Extras(msgspec.Struct, frozen=True, kw_only=True):
    """What a configuration hands on beside addresses; without it every family's gateway has the default route."""

    routes: Sequence[Mapping[str, Any]] = ()
    dns: Mapping[str, Any] = {}


def result_of_add(leases: Sequence[Lease], version: str, *, extras: Extras | None = None) -> Answer:
    """Write the result of an ADD in the form of its version; the oldest has room for one address per family."""
    result: dict[str, Any] = {"cniVersion": version}
    routes = _routes(leases) if extras is None else [dict(each) for each in extras.routes]
    if version in ("0.1.0", "0.2.0"):
        for lease in leases:
            v6 = lease.address.family is Family.V6
            own = [each for each in routes if (":" in str(each["dst"])) is v6]
            told = {"ip": f"{lease.address}/{lease.prefix}", **_gateway(lease), "routes": own}
            result.setdefault(f"ip{lease.address.family}", told)
    else:
        result["ips"] = [
            {
                **({"version": str(int(lease.address.family))} if version.startswith("0.") else {}),
                "address": f"{lease.address}/{lease.prefix}",
                **_gateway(lease),
            }
            for lease in leases
        ]
        result["routes"] = routes
    return Answer(msgspec.json.encode({**result, "dns": extras.dns if extras else {}}))


def _gateway(lease: Lease) -> dict[str, str]:
    return {"gateway": lease.gateway} if lease.gateway else {}


def _routes(leases: Sequence[Lease]) -> list[dict[str, str]]:
    """Make one default route for each family that has a gateway."""
    families = dict.fromkeys(lease.address.family for lease in leases if lease.gateway)
    return [{"dst": DEFAULT_ROUTES[family]} for family in families]


def result_of_version() -> Answer:
    """Tell the versions that are spoken."""
    return Answer(msgspec.json.encode({"cniVersion": VERSIONS[-1], "supportedVersions": VERSIONS}))


def result_of_error(error: CniError, version: str) -> Answer:
    """Write an error, the same in every version."""
    told = {"cniVersion": version, "code": int(error.code), "msg": error.message}
    return Answer(msgspec.json.encode({**told, "details": error.details} if error.details else told), exit_code=1)
