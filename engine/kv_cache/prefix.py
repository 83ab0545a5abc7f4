"""PrefixFinder: how far a prompt is in the reuse tree: whole blocks first, then the beginning of one more.

At least one prompt token is never taken from the tree, because its logits are wanted. A prompt is read block by
block, and no further than it matches. What was found is remembered for the next question about the same request,
which then costs only what changed: a scheduler asks about the head of its queue at every step.

Does not: take blocks (``manager.py``), or change the tree. Torch-free.
Source: prefix matching of TensorRT-LLM's reuse tree; partial reuse copies, as there, when the block is not one's own.
"""

import itertools
from collections.abc import Hashable
from typing import Final

from engine.kv_cache.reuse_tree import Namespace, Node, ReuseTree, Tokens
from engine.llm_request import LlmRequest

_REMEMBERED_PATHS: Final = 256


def namespace_of(request: LlmRequest) -> Namespace:
    """Return what a request must share with another before their tokens are compared. There are no adapters yet."""
    spec = request.spec
    return Namespace(spec.cache_salt, lora_id=None, given_keys=spec.block_keys is not None)


class PrefixFinder:
    """Questions of prompts to one tree. Units: tokens, and blocks of ``tokens_per_block``."""

    def __init__(self, tree: ReuseTree, *, tokens_per_block: int, partial: bool) -> None:
        """Remember nothing yet. partial: whether the beginning of a block counts."""
        self._tree = tree
        self._tokens_per_block = tokens_per_block
        self._is_partial = partial
        self._paths: dict[int, list[Node]] = {}

    def key(self, request: LlmRequest, index: int) -> Hashable | None:
        """Return the key of a request's block, whose tokens are all known; None where keys are given and this has none.

        A given key stands for tokens of the prompt as submitted, so a block that holds generated ones has none.
        """
        size, keys = self._tokens_per_block, request.spec.block_keys
        if keys is None:
            return tuple(request.token_range(index * size, (index + 1) * size))
        is_given = index < len(keys) and (index + 1) * size <= request.py_orig_prompt_len
        return keys[index] if is_given else None

    def path(self, request: LlmRequest) -> list[Node]:
        """Follow the prompt's whole blocks from the root. Valid: until the tree changes."""
        path = self._paths.get(request.request_id)
        if path is None:
            path = self._paths[request.request_id] = []
            if len(self._paths) > _REMEMBERED_PATHS:
                del self._paths[next(iter(self._paths))]
        while path and not path[-1].is_alive:
            path.pop()
        most = (request.py_prompt_len - 1) // self._tokens_per_block
        del path[most:]
        node = path[-1] if path else self._tree.find_root(namespace_of(request))
        while node is not None and len(path) < most:
            key = self.key(request, len(path))
            node = None if key is None else node.children.get(key)
            if node is not None:
                path.append(node)
        return path

    def tail(self, request: LlmRequest, held: int, parent: Node | None) -> tuple[Node, int] | None:
        """Find the block whose beginning goes on where ``held`` whole blocks end. parent: of the last of them."""
        parent = self._tree.find_root(namespace_of(request)) if parent is None else parent
        size, start = self._tokens_per_block, held * self._tokens_per_block
        most = min(size, request.py_prompt_len - start - 1)
        if parent is None or not self._is_partial or most < 1:
            return None
        if parent.has_token_keys:
            found = self._tree.nearest(parent, self._tokens(request, start, min(start + size, request.py_prompt_len)))
            return None if found is None else (found[0], min(found[1], most))
        node = None  # of given keys only a whole block is known, all of whose tokens but the last may be taken
        if start + size <= request.py_prompt_len:
            node = parent.children.get(self.key(request, held))
        return None if node is None else (node, most)

    def forget(self, request_id: int) -> None:
        """Drop what was remembered of a request."""
        self._paths.pop(request_id, None)

    @staticmethod
    def _tokens(request: LlmRequest, start: int, end: int) -> Tokens:
        return tuple(request.token_range(start, end))

    def check(self) -> None:
        """Recompute what remembered paths promise: each node that still lives is a child of the one before it."""
        assert len(self._paths) <= _REMEMBERED_PATHS
        for path in self._paths.values():
            for parent, node in itertools.pairwise(path):
                assert node.parent is parent
                assert parent.is_alive or not node.is_alive, "a node outlived its parent"
