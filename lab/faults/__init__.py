"""Faults to switch on: rules of the graph path broken on purpose, to see what each of them is for.

``run(name)`` runs one here and returns the healthy and the broken trace; ``FAULTS`` lists them. The command line runs
them in processes of their own.

Does not: leave anything broken behind. Every patch ends with its run.
"""

from lab.faults.catalogue import FAULTS
from lab.faults.examine import FaultRun, run

__all__ = ["FAULTS", "FaultRun", "run"]
