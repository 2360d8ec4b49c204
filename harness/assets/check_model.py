"""Load a model folder's config and tokenizer the way a server would; run as a script.

Usage: check_model.py FOLDER
"""

import sys
from pathlib import Path

MARKER = "hybrid spark: 10 + 5,\n    return x"


def check(folder: Path) -> None:
    """Exit with a message when config, tokenizer or chat template do not work."""
    from transformers import AutoConfig, AutoTokenizer

    config = AutoConfig.from_pretrained(folder)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    if len(tokenizer) > config.vocab_size:
        raise SystemExit(f"tokenizer has {len(tokenizer)} tokens, the model only {config.vocab_size}")
    text = tokenizer.apply_chat_template(
        [{"role": "user", "content": MARKER}], tokenize=False, add_generation_prompt=True
    )
    token_ids = tokenizer.encode(text, add_special_tokens=False)
    if MARKER not in text or tokenizer.decode(token_ids) != text:
        raise SystemExit("a chat prompt does not survive encoding and decoding")
    if config.eos_token_id not in token_ids:
        raise SystemExit("the chat template does not end a turn with the model's end-of-sequence token")


if __name__ == "__main__":
    check(Path(sys.argv[1]))
