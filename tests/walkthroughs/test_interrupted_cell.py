"""A cell that is interrupted in a real kernel: the next one goes on where it stopped, and nothing is lost."""

import time

import pytest
from jupyter_client.manager import start_new_kernel

pytestmark = pytest.mark.notebooks

PREPARE = """
from engine import EngineConfig, SamplingParams
from lab import Session

config = EngineConfig(device="cpu", max_seq_len=1024)
params = SamplingParams(max_tokens=600, ignore_eos=True)
prompts = [[5, 6, 7], (3, [9, 8])]
"""
RUN = """
session = Session("tiny", prompts=prompts, config=config, params=params)
session.step()
session.step()
print("runs", flush=True)
session.run()
print("ended by itself")
"""
GO_ON = """
reached = len(session.trace)
session.llm.check()
after = session.step()
trace = session.run()
tokens = {}
for step in trace.steps:
    for request_id, token in step.outcome.tokens:
        tokens.setdefault(request_id, []).append(token)
with Session("tiny", prompts=prompts, config=config, params=params) as whole:
    whole.run()
expected = {output.request_id: list(output.token_ids) for output in whole.outputs}
assert tokens == expected, "a token was lost, or came twice"
session.close()
print(f"reached {reached}, went on at {after.step}, {sum(map(len, tokens.values()))} tokens")
"""


@pytest.fixture
def kernel():
    manager, client = start_new_kernel()
    yield manager, client
    client.stop_channels()
    manager.shutdown_kernel(now=True)


def run(client, code, *, on_output=None):
    """Run a cell; return what it printed, and the name of its error."""
    request, printed, error = client.execute(code), [], None
    while True:
        message = client.get_iopub_msg(timeout=120)
        if message["parent_header"].get("msg_id") != request:
            continue
        kind, content = message["msg_type"], message["content"]
        if kind == "stream":
            printed.append(content["text"])
            if on_output is not None:
                on_output()
                on_output = None
        elif kind == "error":
            error = content["ename"]
        elif kind == "status" and content["execution_state"] == "idle":
            return "".join(printed), error


def test_a_run_that_is_interrupted_goes_on_in_the_next_cell(kernel):
    manager, client = kernel
    assert run(client, PREPARE) == ("", None)

    def interrupt():
        time.sleep(0.3)  # most likely some steps further in
        manager.interrupt_kernel()

    printed, error = run(client, RUN, on_output=interrupt)
    assert (printed, error) == ("runs\n", "KeyboardInterrupt")
    printed, error = run(client, GO_ON)
    assert error is None, printed
    words = printed.split()
    reached, went_on = int(words[1].rstrip(",")), int(words[5].rstrip(","))
    assert 2 <= reached == went_on < 600, printed
    assert words[6] == "1200"
