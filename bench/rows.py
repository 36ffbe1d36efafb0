"""What is compared: one row for each piece of work, the same for everybody."""

from dataclasses import dataclass, replace
from typing import Any


@dataclass(frozen=True)
class Shape:
    """The shape of a model; names are nanoGPT's."""

    vocab_size: int
    block_size: int
    n_layer: int
    n_head: int
    n_embd: int
    bias: bool
    dropout: float = 0.0

    def parameters(self) -> int:
        """N_p: parameters without positions, the head being the token embedding."""
        c = self.n_embd
        biases = 11 * c if self.bias else 0  # two LayerNorms, then 3C + C + 4C + C in a block
        block = 12 * c * c + 2 * c + biases
        ln_f = 2 * c if self.bias else c
        return self.vocab_size * c + self.n_layer * block + ln_f

    def flop_per_token(self) -> int:
        """Of training: 6 N_p for the matrices and 12 LCT for attention, forward and backward."""
        return 6 * self.parameters() + 12 * self.n_layer * self.n_embd * self.block_size


@dataclass(frozen=True)
class Setting:
    """One way to run a peer; what is not said is PyTorch's default."""

    name: str
    bf16: bool = False  # training: autocast; generation: the weights themselves
    compiled: bool = False  # torch.compile
    matmul: str = "highest"  # torch.set_float32_matmul_precision
    sdpa: bool = True  # scaled_dot_product_attention, or attention written out
    only_with_dropout: bool = False


@dataclass(frozen=True)
class Peer:
    """Somebody to be compared with, who counts with the fastest of the settings."""

    name: str
    job: str  # what the worker does: train, generate or transformers
    settings: tuple[Setting, ...]
    finalists: int  # settings that are measured beside TinyGPT; the others are tried alone

    @property
    def multiplies(self) -> bool:
        """Whether its work is products of matrices, which bf16 speeds up where the processor
        multiplies it; else each number is used once, and fewer bits are faster to read anywhere."""
        return self.job != "transformers"


@dataclass(frozen=True)
class Row:
    """One piece of work: steps of training, or tokens of one sequence."""

    name: str
    title: str
    shape: Shape
    peers: tuple[Peer, ...]
    batch_size: int = 1
    new_tokens: int = 0  # 0 trains

    @property
    def trains(self) -> bool:
        """Whether a unit of the work is a training step; else it is a token."""
        return self.new_tokens == 0

    @property
    def tokens_per_unit(self) -> int:
        """B x T in a step of training."""
        return self.batch_size * self.shape.block_size if self.trains else 1

    def settings(self, peer: Peer) -> list[Setting]:
        """A peer's settings that make sense here."""
        dropout = self.shape.dropout > 0
        return [setting for setting in peer.settings if dropout or not setting.only_with_dropout]

    def speed(self, unit_ms: float) -> dict[str, Any]:
        """What `unit_ms` a unit comes to; FLOPs are counted of training only."""
        tokens_per_s = self.tokens_per_unit / unit_ms * 1e3
        speed = {"unit_ms": unit_ms, "tokens_per_s": tokens_per_s}
        if self.trains:
            speed["gflop_per_s"] = tokens_per_s * self.shape.flop_per_token() / 1e9
        return speed


PYTORCH = Peer(
    "PyTorch",
    "train",
    (
        Setting("f32"),
        Setting("f32, compiled", compiled=True),
        Setting("f32, matmul medium", matmul="medium"),
        Setting("bf16 autocast", bf16=True),
        Setting("bf16 autocast, compiled", bf16=True, compiled=True),
        # With dropout PyTorch's kernel for CPUs makes the T x T matrix too, but out of sight of the
        # compiler, which may do better with attention written out.
        Setting(
            "bf16 autocast, compiled, attention written out",
            bf16=True,
            compiled=True,
            sdpa=False,
            only_with_dropout=True,
        ),
        Setting(
            "f32, compiled, attention written out",
            compiled=True,
            sdpa=False,
            only_with_dropout=True,
        ),
    ),
    finalists=2,
)
NANOGPT_WAY = Peer(
    "nanoGPT's way", "generate", (Setting("f32"), Setting("bf16", bf16=True)), finalists=1
)
TRANSFORMERS = Peer(
    "transformers", "transformers", (Setting("f32"), Setting("bf16", bf16=True)), finalists=1
)

CHAR = Shape(65, 256, 6, 6, 384, bias=False)
CHAR_DROPOUT = replace(CHAR, dropout=0.2)
SMALL = Shape(65, 64, 4, 4, 128, bias=False)
GPT2 = Shape(50304, 1024, 12, 12, 768, bias=True)  # nanoGPT's padded vocabulary
GPT2_SHORT = replace(GPT2, block_size=64)

TRAINS, GENERATES = (PYTORCH,), (NANOGPT_WAY, TRANSFORMERS)
ROWS = (
    Row("cpu", "train 0.8M, T 64, B 12", SMALL, TRAINS, 12),
    Row("char", "train 10.7M, T 256, B 16", CHAR, TRAINS, 16),
    Row("char-dropout", "train 10.7M, T 256, B 16, dropout 0.2", CHAR_DROPOUT, TRAINS, 16),
    Row("gpt2-short", "train 124M, T 64, B 4", GPT2_SHORT, TRAINS, 4),
    Row("gpt2", "train 124M, T 1024, B 1", GPT2, TRAINS),
    Row("generate-char", "generate, 10.7M", CHAR, GENERATES, new_tokens=200),
    Row("generate-gpt2", "generate, 124M", GPT2, GENERATES, new_tokens=200),
)
