"""One suite, two servers, here too."""

from tests.kube.conftest import cluster

__all__ = ["cluster"]
