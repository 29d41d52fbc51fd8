"""Gathering: the parts of an experiment that several stores hold become one experiment in one store.

Needs `formats/chain_loader.py`. To remove it, delete this folder and the verb `cli/commands/gather.py`.
"""

from .gathering import GatheredExperiment, GatheredPart, GatheredRecorder, gather

__all__ = ["GatheredExperiment", "GatheredPart", "GatheredRecorder", "gather"]
