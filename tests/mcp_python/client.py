"""Drives the MCP server of the examples with the official Python SDK: a client that this project did not write.

    client.py SERVER DIRECTORY

SERVER is the built example `mcp_server`, DIRECTORY a new directory for its databases. Ends with 0 when every answer was
the expected one. The person's part, the approval, goes over the page's own API with the link from its 0600 file.
"""

import asyncio
import json
import pathlib
import stat
import sys
import urllib.error
import urllib.parse
import urllib.request

from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client

TOOLS = ["execute_price_update", "list_products", "plan_status", "preview_price_update"]
BIG = "green tea"

# No proxy stands between this machine and itself.
LOOPBACK = urllib.request.build_opener(urllib.request.ProxyHandler({}))

passed = 0


def check(what, condition, shown=""):
    global passed
    if not condition:
        raise SystemExit(f"FAILED: {what}: {shown}")
    passed += 1
    print(f"ok: {what}")


class Page:
    """The approval page, as the reviewer's browser talks to it."""

    def __init__(self, directory):
        links = list((directory / "gate.db.owners").glob("reviewer-*.link"))
        check("one link lies beside the database", len(links) == 1, links)
        check("its file belongs to the user alone", stat.S_IMODE(links[0].stat().st_mode) == 0o600)
        link = urllib.parse.urlsplit(links[0].read_text().strip())
        self.base = f"{link.scheme}://{link.netloc}"
        self.token = urllib.parse.parse_qs(link.query)["token"][0]

    def ask(self, path, body=None):
        data = None if body is None else json.dumps(body).encode()
        headers = {"Authorization": f"Bearer {self.token}", "Content-Type": "application/json"}
        request = urllib.request.Request(self.base + path, data, headers)
        try:
            with LOOPBACK.open(request, timeout=30) as answer:
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as error:
            return error.code, json.load(error)

    def approve(self, token):
        _, queue = self.ask("/api/plans")
        card = next(card for card in queue["plans"] if card["plan_token"] == token)
        return self.ask(f"/api/plans/{token}/approve", {"seal": card["seal"]})


async def drive(server, directory):
    parameters = StdioServerParameters(command=server, args=[str(directory)])
    async with stdio_client(parameters) as (read, write), ClientSession(read, write) as session:
        await session.initialize()
        tools = await session.list_tools()
        check("the tools", sorted(tool.name for tool in tools.tools) == TOOLS, tools)

        async def call(tool, **arguments):
            result = await session.call_tool(tool, arguments)
            said = json.loads(result.content[0].text)
            check(f"{tool}: the text repeats what is structured", result.structured_content == said, result)
            return result.is_error, said

        async def refused(code, tool, **arguments):
            is_error, said = await call(tool, **arguments)
            check(f"{tool}: {code}", is_error and said["code"] == code and said["message"] and said["hint"], said)

        _, listed = await call("list_products", category=BIG)
        before = listed["products"][0]["price_cents"]
        _, plan = await call("preview_price_update", category=BIG, percent=15, reason="harvest of last year")
        check("a big update waits", plan["state"] == "awaiting_approval", plan)
        token = plan["plan_token"]
        run = {"plan_token": token, "category": BIG, "percent": 15}
        await refused("AWAITING_APPROVAL", "execute_price_update", **run)

        page = Page(directory)
        waiting = asyncio.create_task(call("plan_status", plan_token=token, wait_seconds=50))
        code, decided = await asyncio.to_thread(page.approve, token)
        check("the person approves", code == 200 and decided["status"] == "approved", decided)
        _, status = await waiting
        check("the agent hears of it", status["state"] == "approved", status)

        await refused("PLAN_MISMATCH", "execute_price_update", **(run | {"percent": 40}))
        is_error, done = await call("execute_price_update", **run)
        check("it runs", not is_error and done["changed"] == plan["products"], done)
        await refused("PLAN_USED", "execute_price_update", **run)
        _, listed = await call("list_products", category=BIG)
        after = listed["products"][0]["price_cents"]
        check("once", after == (before * 85 + 50) // 100, (before, after))


def main():
    server, directory = sys.argv[1], pathlib.Path(sys.argv[2])
    asyncio.run(asyncio.wait_for(drive(server, directory), 120))
    print(f"python-sdk: {passed} passed, 0 failed")


if __name__ == "__main__":
    main()
