"""Network containers for tests."""

from collections.abc import Mapping

from podpool.api.azure import IPAssignment, NetworkContainer

NC = "nc-1"


def status(
    version: int, grants: Mapping[str, str], *, nc: str = NC, answer: str = "NCUpdateSuccess"
) -> NetworkContainer:
    """Return a network container with these grants, by ID."""
    return NetworkContainer(
        id=nc,
        primary_ip="10.0.0.4",
        subnet_name="pods",
        subnet_address_space="10.0.0.0/16",
        default_gateway="10.0.0.1",
        version=version,
        status=answer,
        ip_assignments=tuple(IPAssignment(name=name, ip=address) for name, address in grants.items()),
    )


def grants(*numbers: int) -> dict[str, str]:
    """Return grants by number: `g7` is 10.0.1.7."""
    return {f"g{number}": f"10.0.1.{number}" for number in numbers}
