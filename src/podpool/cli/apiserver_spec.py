"""What is typed to have a Kubernetes API without a cluster."""

from collections.abc import Mapping

from podpool.cli.spec import Command, Option

POCKET_COMMANDS: Mapping[str, Command] = {
    "serve": Command(
        sentence="a Kubernetes API small enough to carry, for kubectl and everything of podpool",
        does="podpool.cli.commands.apiserver:serve_pocket",
        options={
            "listen": Option("127.0.0.1:7782", "address and port"),
            "file": Option("", "keep the objects in this SQLite file; else in memory"),
            "tls": Option("off", "on: HTTPS with a certificate that it makes for itself", ("off", "on")),
            "tls-cert": Option("", "HTTPS with this certificate, a file"),
            "tls-key": Option("", "the certificate's key, a file"),
            "write-kubeconfig": Option("", "write the way to it to this file; else it is printed"),
        },
    ),
}
