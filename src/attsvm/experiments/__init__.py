"""Every experiment of the papers: computed, stored, resumed; `attsvm.plots` draws what is stored here."""

from attsvm.experiments.backends import Backend, Processes
from attsvm.experiments.configuration import Configuration
from attsvm.experiments.dask_cluster import DaskCluster
from attsvm.experiments.experiment import Check, Done, Experiment, Piece, Task, Verdict, cut
from attsvm.experiments.registry import EXPERIMENTS, experiment
from attsvm.experiments.result import ExperimentResult, describe_columns
from attsvm.experiments.runner import check_folder, run

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
