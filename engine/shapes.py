"""The axis letters of the house: one legend for every shape in docstrings, comments and annotations.

    N  rows (tokens) in the step's flat layout        L  layers
    S  sequences in the step (requests x beam)         V  vocabulary
    B  requests in the step                            M  model width
    K  draft tokens of a request                       H  query heads
    T  tokens of one request in one step (1 + K)       G  key-value heads
    R  logit rows in the step                          D  head size
    P  position planes (1; 3 for multimodal rope)      F  feed-forward width
    W  width of a block table (blocks per sequence)    I  tokens per block ("block size")
    A  sequence slots (max_num_sequences + dummies)    J  blocks in the pool

Does not: define tensors or sizes. Records annotate their tensors with these letters through jaxtyping, which
is checked under pytest only.
"""

from typing import Final

AXES: Final[dict[str, str]] = {
    "N": "rows (tokens) in the step",
    "S": "sequences in the step",
    "B": "requests in the step",
    "K": "draft tokens of a request",
    "T": "tokens of one request in one step",
    "R": "logit rows in the step",
    "P": "position planes",
    "W": "blocks per sequence (table width)",
    "A": "sequence slots",
    "L": "layers",
    "V": "vocabulary",
    "M": "model width",
    "H": "query heads",
    "G": "key-value heads",
    "D": "head size",
    "F": "feed-forward width",
    "I": "tokens per block",
    "J": "blocks in the pool",
}
