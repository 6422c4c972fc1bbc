"""What listens on the machine's loopback is reached from a namespace's own, and nothing else is."""

from __future__ import annotations

import sys
import threading
from http.server import HTTPServer, SimpleHTTPRequestHandler
from typing import TYPE_CHECKING

import pytest

from parts import relay
from parts.daemon import Daemon
from parts.loopback import answers, free_port
from parts.relay import network_of

if TYPE_CHECKING:
    from pathlib import Path

    from parts.namespaces import Namespaces

pytestmark = [pytest.mark.real, pytest.mark.xdist_group("network")]


class Quiet(SimpleHTTPRequestHandler):
    """A server that tells the terminal nothing."""

    def log_message(self, *_: object) -> None:
        """Say nothing."""


def test_one_port_is_the_same_on_both_sides(namespaces: Namespaces, tmp_path: Path) -> None:
    port, pid = free_port(), namespaces.holder.pid
    with HTTPServer(("127.0.0.1", port), Quiet) as server:
        serving = threading.Thread(target=server.serve_forever)
        serving.start()
        with network_of(pid):
            assert not answers(port, "/")
        log = tmp_path / "relay.log"
        words = [sys.executable, relay.__file__, str(pid), str(port)]
        daemon = Daemon(words, log=log, ready=lambda: relay.READY in log.read_text())
        daemon.start()
        try:
            with network_of(pid):
                assert answers(port, "/")
            assert answers(port, "/")
        finally:
            daemon.kill()
            server.shutdown()
            serving.join()
