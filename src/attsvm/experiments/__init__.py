"""Every experiment of the papers: computed, stored, resumed; `attsvm.plots` draws what is stored here."""

from attsvm.experiments.experiment import Check, Experiment, Verdict
from attsvm.experiments.registry import EXPERIMENTS, experiment
from attsvm.sweep.backends import Backend, Processes
from attsvm.sweep.configuration import Configuration
from attsvm.sweep.dask_cluster import DaskCluster
from attsvm.sweep.result import ExperimentResult, describe_columns
from attsvm.sweep.runner import check_folder, run
from attsvm.sweep.task import Done, Piece, Task, cut

__all__ = [
    "EXPERIMENTS",
    "Backend",
    "Check",
    "Configuration",
    "DaskCluster",
    "Done",
    "Experiment",
    "ExperimentResult",
    "Piece",
    "Processes",
    "Task",
    "Verdict",
    "check_folder",
    "cut",
    "describe_columns",
    "experiment",
    "run",
]
