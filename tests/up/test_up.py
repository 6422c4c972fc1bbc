"""`podpool up` as a process: what a stranger sees, what stays, and what is said when it cannot be."""

from __future__ import annotations

import asyncio
import signal
import socket
from typing import TYPE_CHECKING

import pytest

from parts.polling import until
from podpool.cli.up.acts import ACTS
from podpool.kube import config
from podpool.kube.client import KubeClient
from podpool.observe.news import News, news_of
from podpool.resources.builtin import EVENTS
from tests.pocket.processes import Kubectl
from tests.up.evenings import Evening

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from parts.postgres import Postgres

SMALL = ("--nodes", "3", "--subnet", "10.77.0.0/25")
YOURS = "the stage is yours"


@pytest.fixture
def evening(tmp_path: Path) -> Iterator[Evening]:
    """A stage that leaves nothing behind."""
    evening = Evening(tmp_path / "up")
    yield evening
    assert [] == evening.left_over()


def test_the_story_runs_to_its_end_and_every_address_has_one_owner_after_each_act(evening: Evening) -> None:
    code, said = evening.ask(*SMALL, "--story", "short", "--once")
    assert 0 == code, said
    assert len(ACTS) == said.count("every address has one owner"), said
    assert "WRONG" not in said
    assert "not done in time" not in said
    for act in ACTS:
        assert act.title in said
    assert "Try next" in said
    evening.open(*SMALL, "--story", "none", until_said=YOURS)
    told = asyncio.run(_told_on_the_page(evening))
    evening.close()
    assert [f"Act {number}" for number in range(1, len(ACTS) + 1)] == sorted(each.about for each in told)
    assert not [each for each in told if each.warning]


async def _told_on_the_page(evening: Evening) -> list[News]:
    road = config.from_kubeconfig(evening.kubeconfig)
    try:
        events = (await KubeClient(road).list(EVENTS)).items
    finally:
        await road.close()
    return [news for each in events if each.reason == "Act" and (news := news_of(each))]


@pytest.mark.real
class TestTheStageIsYours:
    def test_kubectl_works_and_a_second_start_goes_on(self, evening: Evening, tmp_path: Path) -> None:
        evening.open(*SMALL, "--story", "none", until_said=YOURS)
        kubectl = Kubectl(evening.kubeconfig, tmp_path / "kubectl", "default")
        assert 3 == kubectl.say("get", "nodes").count("Ready")
        for name in ("one", "two"):
            assert "created" in kubectl.say("run", name, "--image=none.invalid/none")
        until(lambda: 2 == kubectl.say("get", "pods").count("Running"), "both run")
        where = "jsonpath={range .items[*]}{.metadata.name} {.spec.nodeName} {.status.podIP};{end}"
        before = kubectl.say("get", "pods", "-o", where)
        assert 2 == before.count("10.77.0.")
        assert 0 == evening.close(), evening.said
        assert "goes on with it" in evening.said
        assert [] == evening.left_over()

        evening.open(*SMALL, "--story", "none", until_said=YOURS)
        assert "ready again" in evening.said
        assert before == kubectl.say("get", "pods", "-o", where)
        assert "deleted" in kubectl.say("delete", "pod", "one")
        assert "two" in kubectl.say("get", "pods")
        assert 0 == evening.close(signal.SIGTERM), evening.said
        assert evening.said.startswith("starting an API server")
        assert "stopping" in evening.said

    @pytest.mark.xdist_group("postgres")
    def test_a_real_api_server_and_a_real_postgresql_do_as_well(self, evening: Evening, postgres: Postgres) -> None:
        postgres.psql("CREATE DATABASE stage")
        words = ("--api", "real", "--database", postgres.url("stage"), "--story", "short", "--once")
        code, said = evening.ask(*SMALL, *words)
        assert 0 == code, said
        assert len(ACTS) == said.count("every address has one owner"), said

    @pytest.mark.xdist_group("postgres")
    def test_a_fresh_start_takes_the_database_of_an_earlier_one(self, evening: Evening, postgres: Postgres) -> None:
        postgres.psql("CREATE DATABASE again")
        for _ in range(2):
            words = ("--database", postgres.url("again"), "--story", "none", "--once", "--fresh")
            code, said = evening.ask(*SMALL, *words)
            assert 0 == code, said

    def test_when_it_is_killed_its_parts_end(self, evening: Evening) -> None:
        evening.open(*SMALL, "--story", "none", until_said=YOURS)
        evening.close(signal.SIGKILL)
        until(lambda: not evening.left_over(), "nothing is left")


class TestSentences:
    def test_a_port_that_is_taken(self, evening: Evening) -> None:
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", evening.port + 2))
            taken.listen()
            code, said = evening.ask("--story", "none")
        assert 3 == code
        assert f"port {evening.port + 2}, for the pocket, is in use" in said
        assert "--port" in said

    @pytest.mark.parametrize(
        ("words", "sentence"),
        [
            (("--nodes", "0"), "must be from 1 to 50"),
            (("--subnet", "10.0.0.0/33"), "write it as 10.77.0.0/24"),
            (("--subnet", "10.0.0.0/30"), "must be from /16 to /28"),
            (("--batch", "0"), "must be from 1 to 256"),
            (("--mode", "magic"), "reactive, idempotent, pods"),
            (("--scarcity", "some"), "off, exhaustion, graded"),
            (("--story", "sad"), "full, short, none"),
            (("--api", "mine"), "pocket, real"),
            (("--database", "mysql://me:s3cret@host/books"), "'mysql://me@host/books': is no database"),
        ],
    )
    def test_what_cannot_be_meant(self, evening: Evening, words: tuple[str, ...], sentence: str) -> None:
        code, said = evening.ask(*words)
        assert 2 == code
        assert sentence in said
        assert "Traceback" not in said

    def test_another_subnet_than_before_and_a_stage_that_is_open(self, evening: Evening) -> None:
        evening.open(*SMALL, "--story", "none", until_said=YOURS)
        assert "runs already" in evening.ask("--story", "none")[1]
        evening.close()
        code, said = evening.ask("--subnet", "10.78.0.0/24")
        assert 2 == code
        assert "was set with 10.77.0.0/25" in said
        assert "--fresh" in said
