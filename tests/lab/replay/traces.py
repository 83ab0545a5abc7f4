"""Small serving traces, made in place."""

from lab.replay.serving_trace import ServingTrace, TracedRequest


def plain(*requests, tokens_per_block=16):
    """A trace without ids: (arrival in ms, prompt, answer) each."""
    found = [
        TracedRequest(at + 2, 1000.0 * ms, prompt, answer, index=at) for at, (ms, prompt, answer) in enumerate(requests)
    ]
    return ServingTrace("plain.csv", tuple(found), tokens_per_block, has_hashes=False)


def hashed(*requests, tokens_per_block=512):
    """A trace with ids: (arrival in ms, prompt, answer, ids) each."""
    found = [
        TracedRequest(at + 1, 1000.0 * ms, prompt, answer, tuple(ids), index=at)
        for at, (ms, prompt, answer, ids) in enumerate(requests)
    ]
    return ServingTrace("hashed.jsonl", tuple(found), tokens_per_block, has_hashes=True)
