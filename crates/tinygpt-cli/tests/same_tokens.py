"""Tokens beside those of the libraries that everybody uses: Hugging Face's and OpenAI's.

    python same_tokens.py TINYGPT [TEXT..]

TINYGPT is the program, TEXT more files to compare on. A check whose library is not installed is
skipped, with the reason.
"""

import json
import random
import subprocess
import sys
import tempfile
from pathlib import Path

PROGRAM = str(Path(sys.argv[1]).resolve())
TEXTS = [
    "Hello world, naïve", "abc abc", "a <|endoftext|> b", "hello   world", "it'sall", "don't DON'T",
    "a  b   c    d     e", "a\tb\n\nc", "a\u00a0b", "Привет, мир", "😊 “quoted” 你好", " .", "  \n  x\n",
    "0123456789 42", "\u3000\u2028 x", "'ll'LL 're'", "e\u0301 \u200d\u200d 👩‍👩‍👧 ٣٤ Ⅷ ½", "^" * 5000,
]
MODEL = ("--n-layer 1 --n-head 1 --n-embd 4 --block-size 8 --batch-size 1 --max-iters 1 --eval-iters 1 "
         "--sample-tokens 0 --threads 1 --overwrite").split()


def tinygpt(folder, *words):
    """What a command writes to standard output."""
    done = subprocess.run([PROGRAM, *words], cwd=folder, capture_output=True, encoding="utf-8")
    assert done.returncode == 0, (words, done.stderr)
    return done.stdout


def mixed(size):
    """About so many bytes of every script and blank, always the same."""
    draw = random.Random(7)
    scripts = [(0x20, 0x7E)] * 6 + [
        (0xA0, 0x24F), (0x300, 0x52F), (0x5D0, 0x6FF), (0x900, 0x97F), (0x2000, 0x206F), (0x2150, 0x218F),
        (0x3000, 0x30FF), (0x4E00, 0x9FFF), (0xAC00, 0xD7A3), (0x1F300, 0x1F6FF),
    ]
    words, length = [], 0
    while length < size:
        word = "".join(chr(draw.randint(*draw.choice(scripts[:7]))) for _ in range(draw.randint(0, 9)))
        word += "".join(chr(draw.randint(*draw.choice(scripts))) for _ in range(draw.randint(0, 4)))
        words.append(word + draw.choice([" ", "  ", "\n", "\t", "'s ", "'", " \n\n", "", "12 "]))
        length += len(words[-1].encode())
    return "".join(words)


def ids_of(folder, text, tokenizer):
    """TinyGPT's, of a text or, where it is long, of a file."""
    words = ["--tokenizer", tokenizer]
    if len(text) < 100_000:
        return json.loads(tinygpt(folder, "tokenize", "--json", text, *words))["ids"]
    (folder / "long.txt").write_text(text, encoding="utf-8", newline="")
    tinygpt(folder, "tokenize", "long.txt", "--out", "long.tokens", "--force", *words)
    data = (folder / "long.tokens").read_bytes()
    width, header = data[12], 48
    return [int.from_bytes(data[at:at + width], "little") for at in range(header, len(data), width)]


def hugging_face(folder, texts):
    """Every tokenizer that a run keeps, read by `tokenizers` and by `transformers`."""
    from tokenizers import Tokenizer

    for kind in ["char", "byte", "gpt2", "bpe:400"]:
        tinygpt(folder, "train", "my.txt", "--tokenizer", kind, "--out-dir", "run", *MODEL)
        theirs = Tokenizer.from_file(str(folder / "run/best/tokenizer.json"))
        for text in TEXTS + (texts if kind != "char" else []):
            ids = ids_of(folder, text, "./run")
            assert theirs.encode(text, add_special_tokens=False).ids == ids or "<|endoftext|>" in text, (kind, text[:40])
            assert theirs.decode(ids, skip_special_tokens=False) == text, (kind, text[:40])
        try:
            from transformers import PreTrainedTokenizerFast
        except ImportError:
            continue
        theirs = PreTrainedTokenizerFast(tokenizer_file=str(folder / "run/best/tokenizer.json"))
        assert theirs(TEXTS[0])["input_ids"] == ids_of(folder, TEXTS[0], "./run"), kind


def openai(folder, texts):
    """GPT-2's ids by OpenAI's own algorithm, from the ranks that our file says."""
    import tiktoken

    visible = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    hidden = [byte for byte in range(256) if byte not in visible]
    byte = {chr(b): b for b in visible} | {chr(256 + i): b for i, b in enumerate(hidden)}
    tinygpt(folder, "train", "my.txt", "--tokenizer", "gpt2", "--out-dir", "run", *MODEL)
    vocab = json.loads((folder / "run/best/tokenizer.json").read_text(encoding="utf-8"))["model"]["vocab"]
    end = vocab.pop("<|endoftext|>")
    ranks = {bytes(byte[c] for c in token): rank for token, rank in vocab.items()}
    pattern = r"'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s"
    special = {"<|endoftext|>": end}
    theirs = tiktoken.Encoding("gpt2", pat_str=pattern, mergeable_ranks=ranks, special_tokens=special)
    for text in TEXTS + texts:
        assert theirs.encode_ordinary(text) == ids_of(folder, text, "gpt2"), text[:40]
    text = "a <|endoftext|> b"
    ours = json.loads(tinygpt(folder, "tokenize", "--json", "--allow-special", text))["ids"]
    assert theirs.encode(text, allowed_special="all") == ours == [64, 220, 50256, 275]


texts = [mixed(1_000_000)] + [Path(name).read_text(encoding="utf-8") for name in sys.argv[2:]]
with tempfile.TemporaryDirectory() as folder:
    Path(folder, "my.txt").write_text("".join(TEXTS) * 3, encoding="utf-8", newline="")
    for check in [hugging_face, openai]:
        try:
            check(Path(folder), texts)
            print(f"ok: {check.__name__}")
        except ImportError as error:
            print(f"skipped: {check.__name__}: {error}")
