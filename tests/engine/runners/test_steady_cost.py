"""A steady step's preparation: few device operations, none that allocates, no copy while no table grows."""

from torch.utils._python_dispatch import TorchDispatchMode

from engine import LLM, CudaGraphConfig, EngineConfig, KVCacheConfig, SamplingParams, SchedulerConfig
from engine.probe import Stage

DERIVE = "stepscope.advance_rows_.default"
VIEWS = {"aten.slice.Tensor", "aten.view.dtype", "aten.select.int", "aten.alias.default", "aten.detach.default"}


class Operations(TorchDispatchMode):
    """Lists the operations between two stages of each step."""

    def __init__(self):
        super().__init__()
        self.steps, self.current = [], None

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if self.current is not None:
            self.current.append(str(func))
        return func(*args, **(kwargs or {}))

    def emit(self, stage, step, value):
        if stage is Stage.GRAPH_CHOSEN:
            self.current = []
        elif stage is Stage.METADATA:
            self.steps.append([name for name in self.current if name not in VIEWS])
            self.current = None


def test_a_steady_step_takes_two_operations_and_two_more_copies_when_tables_grow():
    config = EngineConfig(
        device="cpu",
        max_seq_len=64,
        scheduler=SchedulerConfig(max_batch_size=8, max_num_tokens=64),
        kv_cache=KVCacheConfig(tokens_per_block=8),
        cuda_graph=CudaGraphConfig(enabled=False),
    )
    operations = Operations()
    with LLM("tiny", config) as llm:
        for request in range(8):
            llm.submit([1 + request] * 3, SamplingParams(max_tokens=20, ignore_eos=True))
        llm.step()
        llm.step()
        llm.set_probe(operations)
        with operations:
            for _ in range(14):
                llm.step()
    without_growth = [DERIVE, "aten.add_.Tensor"]
    with_growth = [DERIVE, "aten.copy_.default", "aten.index_copy_.default", "aten.add_.Tensor"]
    num_plain, num_growing = (operations.steps.count(kind) for kind in (without_growth, with_growth))
    assert num_plain + num_growing == 14, operations.steps
    assert 1 <= num_growing <= 4, "blocks of 8 tokens, handed out in every fourth step"
