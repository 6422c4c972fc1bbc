"""Looking after who is missed."""

import asyncio

from podpool.api.builtin import Node
from podpool.api.meta import ObjectMeta
from podpool.controller.node_gc import watch_over
from podpool.kube.cache import ObjectCache
from tests.kube.loops import play


def test_who_is_there_between_two_looks_is_seen_until_nobody_looks_any_more() -> None:
    async def story() -> None:
        nodes: ObjectCache[Node] = ObjectCache()
        looks: list[int] = []
        seen: list[Node] = []
        node = Node(metadata=ObjectMeta(name="n1", uid="u"))

        async def look() -> None:
            looks.append(len(nodes))

        watching = asyncio.create_task(watch_over(nodes, look, see=seen.append, gone=40.0))
        await asyncio.sleep(1.0)
        nodes.apply(node)
        nodes.discard(node.key)
        await asyncio.sleep(10.0)
        assert ([0, 0], [node]) == (looks, seen)
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)
        nodes.apply(node)
        assert [node] == seen

    play(story())
