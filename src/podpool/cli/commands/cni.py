"""`podpool cni` installs and uninstalls the plugin."""

import sys
from pathlib import Path

from podpool.cni import conflist
from podpool.cni.install import install, plugin_content, uninstall
from podpool.core.errors import InvalidInput
from podpool.runtime.netlink import remove_all_proxy_entries


def install_plugin(
    *, bin_dir: str, name: str, conf_dir: str, cni_profile: str, cni_options: str, cni_template: str
) -> None:
    """Install the plugin under every name, and the CNI configuration if a directory is named."""
    config = conflist.load(cni_template, profile=cni_profile, options=cni_options, bin_dir=bin_dir) if conf_dir else b""
    plugin = plugin_content(on_progress=_print_progress)
    try:
        for each in name.split(","):
            print(install(Path(bin_dir), name=each.strip(), content=plugin))  # noqa: T201  the command's output
        if conf_dir:
            print(conflist.write(Path(conf_dir), config))  # noqa: T201  the command's output
    except OSError as error:
        raise InvalidInput("path", str(error.filename), f"cannot be written: {error.strerror}") from None


def uninstall_plugin(*, bin_dir: str, name: str, conf_dir: str) -> None:
    """Uninstall the plugin, remove the CNI configuration, and stop answering ARP and NDP for Pods."""
    done = [uninstall(Path(bin_dir), name=each.strip()) for each in name.split(",")]
    done += [conflist.remove(Path(conf_dir))] if conf_dir else []
    for path in filter(None, done):
        print(path)  # noqa: T201  the command's output
    try:
        removed = remove_all_proxy_entries()
    except OSError as error:
        reason = f"{error.strerror}: run it with NET_ADMIN, or ip neigh flush proxy dev INTERFACE"
        raise InvalidInput("proxy entries", "of podpool", f"cannot be removed: {reason}") from None
    if removed:
        print(f"{removed} proxy entries")  # noqa: T201  the command's output


def _print_progress(text: str) -> None:
    print(f"podpool: {text}", file=sys.stderr, flush=True)  # noqa: T201  the result goes to standard output
