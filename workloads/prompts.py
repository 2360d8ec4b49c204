"""Prompts that more than one workload uses."""

import re

Messages = list[dict[str, str]]


def user_turn(content: str, *, system: str | None = None) -> Messages:
    """Return one user message, after a system message if there is one."""
    messages = [] if system is None else [{"role": "system", "content": system}]
    return [*messages, {"role": "user", "content": content}]


def fenced(program: str, language: str) -> str:
    """Put a program in a fence longer than any run of backticks inside it, so that it can be read back."""
    longest = max(map(len, re.findall("`+", program)), default=0)
    fence = "`" * max(3, longest + 1)
    body = program if program.endswith("\n") else program + "\n"
    return f"{fence}{language}\n{body}{fence}"
