"""Datasets, prompts, filters and edit-distance buckets."""

from workloads.buckets import BUCKETS, bucket, bucket_index
from workloads.distances import output_distances
from workloads.errors import MissingDataError, WorkloadError
from workloads.generation import Generation, GenerationInfo, GenerationRecord, read_generation
from workloads.loading import LOADERS, check_available, get_loader, load
from workloads.own_outputs import OutputMeasures, apply_measures, measure_outputs, read_measures
from workloads.reader import Row, read_rows
from workloads.request import LoadedWorkload, Request, request_sha256
from workloads.sampling import draw
from workloads.text import CodeBlock, code_blocks, edit_distance, first_code_block, longest_code_block

__all__ = [
    "BUCKETS",
    "LOADERS",
    "CodeBlock",
    "Generation",
    "GenerationInfo",
    "GenerationRecord",
    "LoadedWorkload",
    "MissingDataError",
    "OutputMeasures",
    "Request",
    "Row",
    "WorkloadError",
    "apply_measures",
    "bucket",
    "bucket_index",
    "check_available",
    "code_blocks",
    "draw",
    "edit_distance",
    "first_code_block",
    "get_loader",
    "load",
    "longest_code_block",
    "measure_outputs",
    "output_distances",
    "read_generation",
    "read_measures",
    "read_rows",
    "request_sha256",
]
