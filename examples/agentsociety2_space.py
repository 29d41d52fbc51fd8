"""Two agents of agentsociety2 talk in a social space on Ray. A stub is the model that writes the code for it.

pip install agentsociety2==2.9.3 PATH                      # PATH: the path of this checkout
MESSAGER_STORE=space.db python examples/agentsociety2_space.py
"""

import asyncio
import json
import os
import re
import threading
from datetime import datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from messager.compat import agentsociety2
from messager.transport import of_process
from messager_store import EventLog


class Model(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        calls = re.findall(r"CALL (\w+\([^)]*\))", json.dumps(asked["messages"]))
        code = f"await modules['SimpleSocialSpace'].{calls[-1]}\n" if calls else ""
        message = {"role": "assistant", "content": f"```python\n{code}results['status'] = 'success'\n```"}
        choices = [{"index": 0, "finish_reason": "stop", "message": message}]
        answer = {"id": "1", "object": "chat.completion", "created": 1, "model": "stub", "choices": choices}
        head = b"HTTP/1.0 200 OK\r\nContent-Type: application/json\r\n\r\n"
        self.wfile.write(head + json.dumps(answer).encode())


async def main() -> None:
    model = ThreadingHTTPServer(("127.0.0.1", 0), Model)
    threading.Thread(target=model.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{model.server_port}/v1"
    os.environ |= {"AGENTSOCIETY_LLM_API_KEY": "x", "AGENTSOCIETY_LLM_API_BASE": url}
    agentsociety2.install()
    from agentsociety2.env.env_router_proxy import create_env_router_proxy

    people = {"SimpleSocialSpace": {"agent_id_name_pairs": [[1, "ann"], [2, "ben"]]}}
    space = await create_env_router_proxy([*people], people)
    await space.init(datetime(2026, 1, 1))
    for agent, call in [
        (1, "send_message(1, 2, 'hello')"),
        (2, "receive_messages(2)"),
        (2, "create_group(2, 'all', [1])"),
        (2, "send_group_message(2, 1, 'hi')"),
        (1, "receive_messages(1)"),
    ]:
        await space.ask({"agent_id": agent, "id": agent, "person_id": agent}, f"CALL {call}")
    await space.close()
    of_process().stop()
    async with EventLog.open(os.environ["MESSAGER_STORE"], create=False) as log:
        async for event in log.read(of_process().exp_id, channels=["social:*"]):
            print(f"{event.kind}: {event.from_id} to {event.to_id or 'a group'}: {event.msg.content}")


if __name__ == "__main__":
    asyncio.run(main())
