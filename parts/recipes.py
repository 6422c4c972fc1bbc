"""Components built from Go modules: one row per component, one cache directory per row.

Modules are in `go/`, with exact versions in go.mod and hashes in go.sum. Rows may share a module. Components in
KUBEBUILDER_ASSETS are used from there.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from parts import cache, golang
from parts.steps import PartMissing, progress, run

MODULES = Path(__file__).resolve().parent / "go"
ASSETS = "KUBEBUILDER_ASSETS"


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """One component: the programs that one `go build` builds."""

    name: str
    version: str
    module: str
    packages: tuple[str, ...]
    usually: str
    stamp: str = ""
    """The Go package whose variables hold the version, if the program prints it from there."""
    tags: str = ""
    """Build tags that leave out what needs more than Go."""
    first: str = ""
    """The name of the first program, if Go would name it after an unrelated directory."""

    @property
    def programs(self) -> tuple[str, ...]:
        """The names of the programs; a package `.` has the name of its module."""
        return (self.first, *self.built[1:]) if self.first else self.built

    @property
    def built(self) -> tuple[str, ...]:
        """The names that Go gives them."""
        return tuple(PurePosixPath(package).name or self.module for package in self.packages)

    @property
    def home(self) -> Path:
        """Its directory in the cache."""
        return cache.place(self.name, self.version)


KUBERNETES = {"version": "1.36.3", "module": "kubernetes", "stamp": "k8s.io/component-base/version"}
CNI = "github.com/containernetworking/plugins/plugins"
CONTAINERD = "github.com/containerd/containerd/v2/cmd"
MULTUS = "gopkg.in/k8snetworkplumbingwg/multus-cni.v4/cmd/multus"
WHEREABOUTS = "github.com/k8snetworkplumbingwg/whereabouts/cmd"

# Durations: 2 cores, nothing in Go's own cache before the first; each finds there what those before it compiled.
RECIPES = (
    Recipe(name="etcd", version="3.6.8", module="etcd", packages=(".",), usually="1 min"),
    Recipe(
        name="kube-apiserver", packages=("k8s.io/kubernetes/cmd/kube-apiserver",), usually="4 to 6 min", **KUBERNETES
    ),
    Recipe(name="kubectl", packages=("k8s.io/kubernetes/cmd/kubectl",), usually="30 s", **KUBERNETES),
    Recipe(
        name="cni",
        version="1.9.1",
        module="cni",
        packages=(
            f"{CNI}/ipam/host-local",
            f"{CNI}/main/bridge",
            f"{CNI}/main/loopback",
            f"{CNI}/main/macvlan",
            f"{CNI}/main/ptp",
        ),
        usually="10 s",
    ),
    Recipe(
        name="kubernetes-node",
        packages=(
            "k8s.io/kubernetes/cmd/kube-controller-manager",
            "k8s.io/kubernetes/cmd/kube-scheduler",
            "k8s.io/kubernetes/cmd/kubelet",
        ),
        usually="4 to 6 min",
        **KUBERNETES,
    ),
    Recipe(
        name="containerd",
        version="2.3.5",
        module="containerd",
        packages=(f"{CONTAINERD}/containerd", f"{CONTAINERD}/containerd-shim-runc-v2", f"{CONTAINERD}/ctr"),
        usually="1 to 2 min",
        tags="no_btrfs",
    ),
    Recipe(name="multus", version="4.2.4", module="multus", packages=(MULTUS,), usually="1 to 2 min"),
    Recipe(
        name="whereabouts",
        version="0.9.4",
        module="whereabouts",
        packages=(WHEREABOUTS, f"{WHEREABOUTS}/nodeslicecontroller"),
        first="whereabouts",
        usually="1 to 3 min",
    ),
    Recipe(name="helm", version="4.3.1", module="helm", packages=("helm.sh/helm/v4/cmd/helm",), usually="2 to 4 min"),
    Recipe(name="pause", version="1", module="pause", packages=(".",), usually="1 s"),
)


def recipe(name: str) -> Recipe:
    """Return the recipe of a component."""
    return next(each for each in RECIPES if each.name == name)


def build(recipe: Recipe) -> None:
    """Build a component unless it exists."""
    if all(given(name) for name in recipe.programs) or cache.complete(recipe.home, recipe.programs):
        return
    go = golang.find()
    with progress(f"building {recipe.name} {recipe.version}", usually=recipe.usually):
        cache.keep(recipe.home, recipe.programs, lambda scratch: compile_into(scratch, recipe, go))


def compile_into(scratch: Path, recipe: Recipe, go: str) -> None:
    """Run `go build`."""
    linked = ["-s", "-w"]
    if recipe.stamp:
        major, minor, _ = recipe.version.split(".")
        stamped = {"gitVersion": f"v{recipe.version}", "gitMajor": major, "gitMinor": minor}
        linked += [f"-X {recipe.stamp}.{variable}={value}" for variable, value in stamped.items()]
    # A directory as output needs its slash: else a single program is written under the directory's name.
    run(
        *(go, "build", "-tags", recipe.tags, "-ldflags", " ".join(linked), "-o", f"{scratch}/", *recipe.packages),
        env=golang.environment(),
        cwd=MODULES / recipe.module,
        otherwise=f"{recipe.name} cannot be built: see whether the Go module proxy can be reached and whether "
        f"your disk has 4 GB free, then run 'make parts' again.",
    )
    (scratch / recipe.built[0]).rename(scratch / recipe.programs[0])


def program(name: str) -> Path:
    """Return the path of a program; raises if it is missing."""
    recipe = next(recipe for recipe in RECIPES if name in recipe.programs)
    path = given(name) or recipe.home / name
    if not path.exists():
        raise PartMissing(f"{name} {recipe.version} is not built: run 'make parts'.")
    return path


def given(name: str) -> Path | None:
    """Return a program in KUBEBUILDER_ASSETS, or None."""
    assets = os.environ.get(ASSETS)
    if not assets:
        return None
    path = Path(assets) / name
    return path if path.exists() else None
