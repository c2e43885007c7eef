"""The collector's own HTTP server with an app that reads each body and drops it: the most that the server could do."""

import sys

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from spanloop.collector.connections import PatientProtocol


async def drop(request: Request) -> Response:
    """Read to the end, and answer what a collector answers."""
    pieces = [piece async for piece in request.stream()]
    b"".join(pieces)
    return Response(b"", media_type="application/x-protobuf")


if __name__ == "__main__":
    app = Starlette(routes=[Route("/v1/traces", drop, methods=["POST"])])
    uvicorn.run(app, port=int(sys.argv[1]), http=PatientProtocol, lifespan="off", access_log=False, log_level="error")
