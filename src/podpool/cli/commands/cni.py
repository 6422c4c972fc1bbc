"""The plugin's place: put it there, and take it away."""

from pathlib import Path

from podpool.cni import conflist
from podpool.cni.install import content, install, remove_conflist, uninstall
from podpool.core.errors import InvalidInput


def install_plugin(*, bin_dir: str, name: str, conf_dir: str, cni_template: str) -> None:
    """Put the plugin in place, under every name, and the configuration where that is wanted."""
    made, told = content(), conflist.content(cni_template) if conf_dir else b""
    try:
        for each in name.split(","):
            print(install(Path(bin_dir), name=each.strip(), made=made))  # noqa: T201  for the person who typed it
        if conf_dir:
            print(conflist.write(Path(conf_dir), told))  # noqa: T201  for the person who typed it
    except OSError as error:
        raise InvalidInput("place", str(error.filename), f"cannot be written: {error.strerror}") from None


def uninstall_plugin(*, bin_dir: str, name: str, conf_dir: str) -> None:
    """Undo it."""
    done = [uninstall(Path(bin_dir), name=each.strip()) for each in name.split(",")]
    done += [remove_conflist(Path(conf_dir))] if conf_dir else []
    for path in filter(None, done):
        print(path)  # noqa: T201  for the person who typed it
