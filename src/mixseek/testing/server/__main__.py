"""The server as a process: it prints one line of JSON with its address, and serves until it is told to end."""

import argparse
import asyncio
import json
import os
import signal
import sys

from mixseek.testing.server.model_server import ModelServer


def main(argv: list[str] | None = None) -> None:
    """Run the server that the command line describes."""
    options = _parser().parse_args(argv)
    asyncio.run(_serve(options))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m mixseek.testing.server", description="A loopback model server.")
    parser.add_argument("--port", type=int, default=0, help="0: any free one")
    parser.add_argument("--seed", type=int, default=0, help="decides scores, jitter and shares of faults")
    parser.add_argument("--latency", type=float, default=0.0, metavar="SECONDS", help="of every answer")
    parser.add_argument("--jitter", type=float, default=0.0, metavar="SECONDS", help="added at most to the latency")
    parser.add_argument("--rate-limit", type=float, metavar="N", help="requests per second, beyond which 429 is sent")
    parser.add_argument("--burst", type=int, metavar="N", help="requests that may come at once under a rate limit")
    parser.add_argument("--no-bodies", action="store_true", help="keep no request bodies in the log")
    parser.add_argument("--log-size", type=int, default=1000, metavar="N", help="requests kept in the log")
    parser.add_argument(
        "--log-bytes", type=int, default=64 * 1024 * 1024, metavar="N", help="of bodies kept in the log"
    )
    parser.add_argument("--end-with-stdin", action="store_true", help="end when standard input is closed")
    return parser


async def _serve(options: argparse.Namespace) -> None:
    server = ModelServer(
        port=options.port,
        seed=options.seed,
        latency=options.latency,
        jitter=options.jitter,
        rate_limit=options.rate_limit,
        burst=options.burst,
        keep_bodies=not options.no_bodies,
        log_size=options.log_size,
        log_bytes=options.log_bytes,
    )
    ended = asyncio.Event()
    _end_on_signals(ended)
    if options.end_with_stdin:
        _end_with_stdin(ended)
    async with server:
        address = {"url": server.url, "base_url": server.base_url, "port": server.port, "pid": os.getpid()}
        sys.stdout.write(json.dumps(address) + "\n")
        sys.stdout.flush()
        await ended.wait()


def _end_on_signals(ended: asyncio.Event) -> None:
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, ended.set)


def _end_with_stdin(ended: asyncio.Event) -> None:
    """End when whoever holds the other side of standard input is gone, however it went."""
    loop = asyncio.get_running_loop()
    stdin = sys.stdin.fileno()

    def readable() -> None:
        if not os.read(stdin, 4096):
            loop.remove_reader(stdin)
            ended.set()

    loop.add_reader(stdin, readable)


if __name__ == "__main__":
    main()
