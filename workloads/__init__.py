"""Datasets, prompts, filters and edit-distance buckets."""

from workloads.buckets import BUCKETS, bucket, bucket_index
from workloads.errors import MissingDataError, WorkloadError
from workloads.loading import LOADERS, check_available, get_loader, load
from workloads.reader import Row, read_rows
from workloads.request import LoadedWorkload, Request
from workloads.sampling import draw
from workloads.text import CodeBlock, code_blocks, edit_distance, first_code_block, longest_code_block

__all__ = [
    "BUCKETS",
    "LOADERS",
    "CodeBlock",
    "LoadedWorkload",
    "MissingDataError",
    "Request",
    "Row",
    "WorkloadError",
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
    "read_rows",
]
