"""What the children's server does once, so that its forks need not: import torch, and capture one small graph.

The first capture of a process costs over a second of torch's own tables; a fork inherits them. One thread, because
threads do not survive a fork; the tiny model needs no more.

Does not: touch CUDA, which a fork could not use. Importing it is all that it is for.
"""

import torch

from lab.faults.children import silence
from lab.faults.fault import THREE, Workload, small_config
from lab.faults.runs import run_workload

torch.set_num_threads(1)
for backend in ("native", "vanilla"):
    run_workload(Workload(THREE, small_config(attention_backend=backend)), "cpu", guarded=True)
silence()
