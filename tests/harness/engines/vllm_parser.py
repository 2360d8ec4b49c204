"""Read server command lines with the installed vLLM's own parser: JSON lists on stdin, parsed values on stdout."""

import json
import sys
from typing import Any


def parse(command_lines: list[list[str]]) -> list[dict[str, Any]]:
    try:
        from vllm.entrypoints.common.cli_args import make_arg_parser
    except ImportError:  # vLLM 0.32
        from vllm.entrypoints.launchers.cli_args import make_arg_parser
    from vllm.engine.arg_utils import AsyncEngineArgs
    from vllm.utils.argparse_utils import FlexibleArgumentParser

    parser = make_arg_parser(FlexibleArgumentParser())
    parsed = []
    for arguments in command_lines:
        namespace = parser.parse_args(arguments)
        # The dataclass that the server builds next: a value of the wrong type fails here.
        engine_args = AsyncEngineArgs.from_cli_args(namespace)
        values = {name: getattr(engine_args, name) for name in vars(namespace) if hasattr(engine_args, name)}
        parsed.append(json.loads(json.dumps(vars(namespace) | values, default=str)))
    return parsed


if __name__ == "__main__":
    answer = parse(json.load(sys.stdin))
    print("\nparsed " + json.dumps(answer), flush=True)
