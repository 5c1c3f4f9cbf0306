# SPDX-License-Identifier: GPL-2.0-or-later
"""A model of GPT-2's shape over bytes."""

import math

import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint


def attend(query, key, value, dropout):
    """Causal attention; [batch, heads, tokens, width] each."""
    if hasattr(functional, "scaled_dot_product_attention"):
        return functional.scaled_dot_product_attention(
            query, key, value, dropout_p=dropout, is_causal=True)
    # PyTorch 1 has no other.
    tokens = query.shape[-2]
    scores = query @ key.transpose(-2, -1) / math.sqrt(query.shape[-1])
    later = torch.ones(tokens, tokens, dtype=torch.bool,
                       device=query.device).triu(1)
    weights = scores.masked_fill(later, -math.inf).softmax(-1)
    return functional.dropout(weights, dropout) @ value


class Block(nn.Module):
    """Attention and an MLP, each behind a norm and beside a residual."""

    def __init__(self, shape, dropout):
        super().__init__()
        width = shape["n_embd"]
        self.heads = shape["n_head"]
        self.dropout = dropout
        self.first_norm = nn.LayerNorm(width)
        self.query_key_value = nn.Linear(width, 3 * width)
        self.joined = nn.Linear(width, width)
        self.second_norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)

    def forward(self, given):
        batch, tokens, width = given.shape
        dropout = self.dropout if self.training else 0.0
        parts = self.query_key_value(self.first_norm(given))
        parts = parts.view(batch, tokens, 3, self.heads, width // self.heads)
        query, key, value = parts.permute(2, 0, 3, 1, 4)
        seen = attend(query, key, value, dropout)
        seen = seen.transpose(1, 2).reshape(batch, tokens, width)
        given = given + functional.dropout(self.joined(seen), dropout)
        inner = functional.gelu(self.up(self.second_norm(given)))
        return given + functional.dropout(self.down(inner), dropout)


class Model(nn.Module):
    """The language model.

    shape: the keys of GPT-2's config.json: n_layer, n_embd, n_head, vocab_size,
    n_positions.
    """

    def __init__(self, shape, dropout=0.0):
        super().__init__()
        self.checkpointing = False  # compute activations again on the way back
        width = shape["n_embd"]
        self.words = nn.Embedding(shape["vocab_size"], width)
        self.places = nn.Embedding(shape["n_positions"], width)
        self.blocks = nn.ModuleList(Block(shape, dropout)
                                    for _ in range(shape["n_layer"]))
        self.norm = nn.LayerNorm(width)
        for name, weight in self.named_parameters():
            if weight.dim() > 1:
                depth = 2 * shape["n_layer"]
                last = name.endswith(("joined.weight", "down.weight"))
                nn.init.normal_(weight, 0,
                                0.02 / math.sqrt(depth) if last else 0.02)
            elif name.endswith("bias"):
                nn.init.zeros_(weight)

    def forward(self, tokens):
        """tokens: [batch, length] of integers. Returns logits, [batch, length,
        words]; the words' embedding is the last layer as well."""
        places = torch.arange(tokens.shape[1], device=tokens.device)
        given = self.words(tokens) + self.places(places)
        for block in self.blocks:
            if self.checkpointing and self.training:
                given = checkpoint(block, given, use_reentrant=False)
            else:
                given = block(given)
        return functional.linear(self.norm(given), self.words.weight)

    def loss(self, sequences):
        """The mean loss of sequences, [batch, length + 1], in nats a byte."""
        logits = self(sequences[:, :-1])
        return functional.cross_entropy(logits.float().flatten(0, 1),
                                        sequences[:, 1:].flatten())
