"""Newcomers take the beginnings of their prompts from the reuse tree, all of a step together.

First everybody shares what live requests own, which costs nothing. Then cached blocks are taken, before anything is
allocated that could evict them; then content comes back from the host and blocks are begun by copy. Those two steps
draw on the free blocks, so they go only as far as the step's own needs leave room: a credit that made a row of the
same step go without a block would be worse than none.

Does not: know tables (``manager.py``), or run copies. Torch-free.
Source: TensorRT-LLM adds the sequences of a step in two phases, claim all matched blocks, then onboard.
"""

import dataclasses
from collections.abc import Sequence

from engine.kv_cache.ledger import BlockLedger, Copies
from engine.kv_cache.prefix import PrefixFinder
from engine.kv_cache.reuse_tree import Node
from engine.llm_request import LlmRequest


@dataclasses.dataclass(slots=True, eq=False)
class Newcomer:
    """A request with nothing, and the rows that it runs next.

    blocks: what it took so far, of which num_whole are whole; num_tokens: the tokens in them.
    """

    request: LlmRequest
    num_rows: int
    blocks: list[int] = dataclasses.field(default_factory=list[int])
    num_whole: int = 0
    num_tokens: int = 0
    last: Node | None = None  # whose content the last whole block holds


class _Round:
    """One step's newcomers over one ledger; ``spare`` is how many blocks nobody in the step will need."""

    def __init__(self, ledger: BlockLedger, copies: Copies, num_promised: int, tokens_per_block: int) -> None:
        self.spare = 0
        self._ledger, self._copies = ledger, copies
        self._num_promised = num_promised
        self._size = tokens_per_block

    def count_spare(self, newcomers: Sequence[Newcomer]) -> None:
        drawn = sum(self._draws(newcomer, newcomer.num_tokens, len(newcomer.blocks)) for newcomer in newcomers)
        self.spare = self._ledger.num_free - self._num_promised - drawn

    def share(self, newcomer: Newcomer, path: Sequence[Node], *, cached: bool, host: bool) -> None:
        """Take whole blocks along the path; cached or host: also those that take a free block."""
        for node in path[newcomer.num_whole :]:
            tokens = newcomer.num_tokens + self._size
            if self._ledger.is_used(node):
                self.spare += self._gain(newcomer, tokens)
                block = self._ledger.acquire(node)
            elif node.blocks and cached and self._affords(newcomer, tokens):
                block = self._ledger.acquire(node)
            elif node.host_block is not None and host and self._affords(newcomer, tokens):
                block = self._ledger.onboard(node, self._copies)
            else:
                break
            newcomer.blocks.append(block)
            newcomer.num_whole += 1
            newcomer.num_tokens, newcomer.last = tokens, node

    def begin_block(self, newcomer: Newcomer, found: tuple[Node, int]) -> None:
        """Begin one more block by copy."""
        node, num_tokens = found
        if self._affords(newcomer, newcomer.num_tokens + num_tokens):
            after = newcomer.blocks[-1] if newcomer.blocks else None
            block = self._ledger.copy_beginning(node, num_tokens, after=after, copies=self._copies)
            if block is not None:
                newcomer.blocks.append(block)
                newcomer.num_tokens += num_tokens

    def _affords(self, newcomer: Newcomer, num_tokens: int) -> bool:
        """Pay for one free block that brings a newcomer to ``num_tokens``, if the others still get theirs."""
        cost = 1 - self._gain(newcomer, num_tokens)
        if not self._ledger.num_free or cost > max(0, self.spare):
            return False
        self.spare -= cost
        return True

    def _gain(self, newcomer: Newcomer, num_tokens: int) -> int:
        """Count by how much one more block, and so many tokens, lowers what its rows will draw from the free ones."""
        owned = len(newcomer.blocks)
        return self._draws(newcomer, newcomer.num_tokens, owned) - self._draws(newcomer, num_tokens, owned + 1)

    def _draws(self, newcomer: Newcomer, num_tokens: int, owned: int) -> int:
        end = min(num_tokens + newcomer.num_rows, newcomer.request.py_prompt_len)
        return -(-end // self._size) - owned


def take_prefixes(
    newcomers: Sequence[Newcomer],
    finder: PrefixFinder,
    ledger: BlockLedger,
    copies: Copies,
    num_promised: int,
    *,
    tokens_per_block: int,
) -> None:
    """Let each newcomer take what its prompt has in the tree. num_promised: free blocks that others need now."""
    of_step = _Round(ledger, copies, num_promised, tokens_per_block)
    for newcomer in newcomers:
        of_step.share(newcomer, finder.path(newcomer.request), cached=False, host=False)
    of_step.count_spare(newcomers)
    for newcomer in newcomers:
        of_step.share(newcomer, finder.path(newcomer.request), cached=True, host=False)
    for newcomer in newcomers:
        of_step.share(newcomer, finder.path(newcomer.request), cached=True, host=True)
        found = finder.tail(newcomer.request, newcomer.num_whole, newcomer.last)
        if found is not None:
            of_step.begin_block(newcomer, found)
