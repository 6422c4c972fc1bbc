"""An API server that refuses writes now and then, although nothing is wrong with them."""

import json
import random

from podpool.runtime.transport import Handler, Request, Response

ANSWERS = {409: "Conflict", 422: "Invalid", 500: "InternalError"}


class Refusing:
    """Stands before a server, and answers some patches of IPPools and Leases itself."""

    def __init__(self, handler: Handler, rng: random.Random) -> None:
        self.share = 0.0
        """Of the patches, that are refused."""
        self._handler = handler
        self._rng = rng

    async def __call__(self, request: Request) -> Response:
        """Answer, or have it answered."""
        kinds = {"ippools", "leases"} & set(request.path.split("/"))
        if not (self.share and kinds and request.method == "PATCH") or self._rng.random() >= self.share:
            return await self._handler(request)
        code = self._rng.choice(sorted(ANSWERS))
        status = {"kind": "Status", "status": "Failure", "reason": ANSWERS[code], "code": code, "message": "not now"}
        return Response(code, json.dumps(status).encode(), headers={"content-type": "application/json"})
