"""The `cluster` fixture runs a test against the lite API server and against kube-apiserver."""

from tests.kube.conftest import cluster

__all__ = ["cluster"]
