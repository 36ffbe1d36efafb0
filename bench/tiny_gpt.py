"""GPT-2's architecture in plain PyTorch: the peer that TinyGPT is measured against.

The same model as TinyGPT's, tensor for tensor: `test_sides.py` holds it against the golden values
that TinyGPT itself is tested with. Letters as in TinyGPT: B sequences of T tokens, V tokens in the
vocabulary, C channels, H heads of D = C/H channels, L blocks.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F


@dataclass(frozen=True)
class GptConfig:
    """The shape of a model; names are nanoGPT's."""

    vocab_size: int
    block_size: int
    n_layer: int
    n_head: int
    n_embd: int
    bias: bool = True
    dropout: float = 0.0
    sdpa: bool = True  # attention by PyTorch's own kernel, or written out


class Attention(nn.Module):
    """Every position fetches from the positions before it, and from itself."""

    def __init__(self, c: GptConfig):
        super().__init__()
        self.n_head, self.dropout, self.sdpa = c.n_head, c.dropout, c.sdpa
        self.c_attn = nn.Linear(c.n_embd, 3 * c.n_embd, bias=c.bias)  # q, k and v in one product
        self.c_proj = nn.Linear(c.n_embd, c.n_embd, bias=c.bias)
        past = torch.ones(c.block_size, c.block_size, dtype=torch.bool).tril()
        self.register_buffer("past", past, persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        b, t, c = x.shape
        heads = self.c_attn(x).view(b, t, 3, self.n_head, c // self.n_head)  # (B,T,3,H,D)
        q, k, v = heads.permute(2, 0, 3, 1, 4)  # each (B,H,T,D)
        dropout = self.dropout if self.training else 0.0
        if self.sdpa:
            y = F.scaled_dot_product_attention(q, k, v, dropout_p=dropout, is_causal=True)
        else:
            scores = q @ k.transpose(-2, -1) / math.sqrt(q.size(-1))  # (B,H,T,T)
            scores = scores.masked_fill(~self.past[:t, :t], -math.inf)  # (B,H,T,T)
            y = F.dropout(scores.softmax(dim=-1), dropout) @ v  # (B,H,T,D)
        y = y.transpose(1, 2).reshape(b, t, c)  # (B,T,C)
        return F.dropout(self.c_proj(y), dropout)  # (B,T,C)


class Mlp(nn.Module):
    """Transforms each position by itself."""

    def __init__(self, c: GptConfig):
        super().__init__()
        self.c_fc = nn.Linear(c.n_embd, 4 * c.n_embd, bias=c.bias)
        self.c_proj = nn.Linear(4 * c.n_embd, c.n_embd, bias=c.bias)
        self.dropout = nn.Dropout(c.dropout)

    def forward(self, x: Tensor) -> Tensor:
        hidden = F.gelu(self.c_fc(x))  # (B,T,4C), the exact GELU
        return self.dropout(self.c_proj(hidden))  # (B,T,C)


class Block(nn.Module):
    """Attention, then the MLP, each added to the residual stream."""

    def __init__(self, c: GptConfig):
        super().__init__()
        self.ln_1 = nn.LayerNorm(c.n_embd, bias=c.bias)
        self.attn = Attention(c)
        self.ln_2 = nn.LayerNorm(c.n_embd, bias=c.bias)
        self.mlp = Mlp(c)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attn(self.ln_1(x))  # (B,T,C)
        return x + self.mlp(self.ln_2(x))  # (B,T,C)


class Gpt(nn.Module):
    """The whole model. Parameters have GPT-2's names; the head is tied to the embedding."""

    def __init__(self, c: GptConfig):
        super().__init__()
        self.config = c
        self.transformer = nn.ModuleDict(
            {
                "wte": nn.Embedding(c.vocab_size, c.n_embd),
                "wpe": nn.Embedding(c.block_size, c.n_embd),
                "drop": nn.Dropout(c.dropout),
                "h": nn.ModuleList(Block(c) for _ in range(c.n_layer)),
                "ln_f": nn.LayerNorm(c.n_embd, bias=c.bias),
            }
        )
        self.lm_head = nn.Linear(c.n_embd, c.vocab_size, bias=False)
        self.lm_head.weight = self.transformer.wte.weight
        self.init_weights()

    @torch.no_grad()
    def init_weights(self) -> None:
        """GPT-2's: N(0, 0.02); what adds to the residual stream less, for there are 2L of these."""
        residual = 0.02 / math.sqrt(2 * self.config.n_layer)
        for name, parameter in self.named_parameters():
            if parameter.dim() >= 2:
                parameter.normal_(0.0, residual if name.endswith("c_proj.weight") else 0.02)
            elif name.endswith("bias"):
                parameter.zero_()

    def forward(self, idx: Tensor, targets: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
        """`idx` (B,T) to logits (B,T,V) and the mean loss; (B,1,V) and none without targets."""
        wte, wpe, drop, blocks, ln_f = self.transformer.values()
        positions = torch.arange(idx.size(1), device=idx.device)  # (T)
        x = drop(wte(idx) + wpe(positions))  # (B,T,C)
        for block in blocks:
            x = block(x)  # (B,T,C)
        x = ln_f(x)  # (B,T,C)
        if targets is None:
            return self.lm_head(x[:, -1:]), None  # (B,1,V)
        logits = self.lm_head(x)  # (B,T,V)
        loss = F.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=-1)  # ()
        return logits, loss

    def optimizer(self, lr: float, betas: tuple[float, float]) -> torch.optim.AdamW:
        """AdamW that decays matrices only, in PyTorch's fastest form: one fused pass."""
        decays = [p for p in self.parameters() if p.dim() >= 2]
        others = [p for p in self.parameters() if p.dim() < 2]
        groups = [
            {"params": decays, "weight_decay": 0.1},
            {"params": others, "weight_decay": 0.0},
        ]
        return torch.optim.AdamW(groups, lr=lr, betas=betas, fused=True)

    @torch.no_grad()
    def generate(self, idx: Tensor, max_new_tokens: int, temperature: float = 1.0) -> Tensor:
        """Adds tokens to `idx` (B,T) as nanoGPT does: no cache, the whole context every time."""
        for _ in range(max_new_tokens):
            logits, _ = self(idx[:, -self.config.block_size :])  # (B,1,V)
            probabilities = (logits[:, -1] / temperature).softmax(dim=-1)  # (B,V)
            idx = torch.cat((idx, torch.multinomial(probabilities, 1)), dim=1)  # (B,T+1)
        return idx
