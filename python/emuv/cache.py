# SPDX-License-Identifier: LGPL-2.1-or-later
"""A cache of keys and values in system RAM, for models of Hugging Face's transformers.

    from emuv.cache import SpilledCache, enable
    enable(model)
    model.generate(**tokens, past_key_values=SpilledCache())

The card holds two blocks of one layer's keys and values at a time. emuv.attention
reads the others while it computes, so all layers together may exceed the card.
"""

import torch

from emuv.attention import attention

try:
    from transformers.cache_utils import Cache as _Base
except ImportError:
    # The cache works without, as something that has update().
    _Base = object

NAME = "emuv"
_LEAST = 256  # tokens that room is made for at once


class _Layer:
    """Keys and values of one layer, [tokens, batch, heads, width] each. So a block
    of tokens is one piece of memory, and more tokens move nothing."""

    is_compileable = False
    # All tokens are kept; a window is the attention's.
    is_sliding = False

    def __init__(self, reserve, pin):
        self.reserve, self.pin = reserve, pin
        self.tokens, self.room, self.written = 0, None, None

    @property
    def is_initialized(self):
        return self.room is not None

    def _shown(self, which):
        if self.room is None:
            return None
        return self.room[which][:self.tokens].permute(1, 2, 0, 3)

    @property
    def keys(self):
        """[batch, heads, tokens, width], in RAM, once all has arrived there. None
        before the first update."""
        self._wait()
        return self._shown(0)

    @property
    def values(self):
        """As keys."""
        self._wait()
        return self._shown(1)

    def _wait(self):
        """Until all that has been written has arrived."""
        if self.written is not None:
            self.written.synchronize()

    def _made(self, like, capacity, batch):
        """Room for so many tokens; like: [batch, heads, tokens, width]."""
        # Others may write it later, outside of inference mode.
        with torch.inference_mode(False):
            return torch.empty(capacity, batch, like.shape[1], like.shape[3],
                               dtype=like.dtype, pin_memory=self.pin)

    def _grow(self, new, needed):
        """Makes room for so many tokens, at least twice as many as before."""
        held = self.room[0].shape[0] if self.room is not None else 0
        if needed <= held:
            return
        self._wait()
        capacity = max(needed, 2 * held, self.reserve, _LEAST)
        room = [self._made(each, capacity, each.shape[0]) for each in new]
        for each, old in zip(room, self.room or ()):
            each[:self.tokens] = old[:self.tokens]
        self.room = room

    def _check(self, new):
        for each, held in zip(new, (self.keys, self.values)):
            if each.dim() != 4 or each.shape[:3] != new[0].shape[:3]:
                raise ValueError("keys and values are [batch, heads, tokens, "
                                 "width], of as many tokens each")
            if held is not None and (held.dtype != each.dtype or
                                     held.shape[:2] != each.shape[:2] or
                                     held.shape[3] != each.shape[3]):
                raise ValueError(f"the cache holds {held.dtype} "
                                 f"{list(held.shape)}, which does not grow by "
                                 f"{each.dtype} {list(each.shape)}")
            if each.requires_grad and torch.is_grad_enabled():
                raise ValueError("the cache keeps no gradients: run the model "
                                 "under torch.no_grad()")

    def update(self, keys, values):
        """Appends tokens. Returns all keys and all values, where they lie. New
        ones come there in the order of the current stream's work."""
        new = (keys, values)
        self._check(new)
        end = self.tokens + keys.shape[2]
        self.pin = self.pin and keys.is_cuda
        self._grow(new, end)
        with torch.no_grad():
            for room, each in zip(self.room, new):
                room[self.tokens:end].copy_(
                    each.permute(2, 0, 1, 3).contiguous(), non_blocking=True)
        self.tokens = end
        if keys.is_cuda:
            self.written = torch.cuda.current_stream(keys.device).record_event()
        return self._shown(0), self._shown(1)

    def __deepcopy__(self, memo):
        """A copy that grows by itself: for a prompt that several texts share."""
        self._wait()
        made = _Layer(self.reserve, self.pin)
        made.tokens = self.tokens
        if self.room is not None:
            made.room = [self._made(self._shown(which), old.shape[0],
                                    old.shape[1]) for which, old in
                         enumerate(self.room)]
            for room, old in zip(made.room, self.room):
                room[:self.tokens] = old[:self.tokens]
        return made

    def get_seq_length(self):
        return self.tokens

    def get_max_cache_shape(self):
        return -1

    def get_mask_sizes(self, queries):
        """Tokens after so many more, and the first of them. queries: a number, or
        the tensor of places that older versions hand over."""
        return self.tokens + _count(queries), 0

    def crop(self, most):
        """Forgets all tokens but so many; of a negative number, so many."""
        most = self.tokens + most if most < 0 else most
        self.tokens = max(0, min(self.tokens, most))

    def reset(self):
        """Forgets all tokens, and keeps the room."""
        self.tokens = 0

    def select(self, rows):
        """Keeps these rows of the batch, in this order; one may come twice."""
        if self.room is None:
            return
        self._wait()
        rows = torch.as_tensor(rows).cpu()
        if rows.dtype == torch.bool:
            rows = rows.nonzero()[:, 0]
        made = [self._made(self._shown(which), old.shape[0], len(rows))
                for which, old in enumerate(self.room)]
        for room, old in zip(made, self.room):
            room[:self.tokens] = old[:self.tokens].index_select(1, rows)
        self.room = made  # both, or neither

    def repeat(self, times):
        """Each row of the batch so often."""
        if self.room is not None:
            rows = torch.arange(self.room[0].shape[1])
            self.select(rows.repeat_interleave(times))

    # By the names of transformers.
    reorder_cache = batch_select_indices = select
    batch_repeat_interleave = repeat


def _count(queries):
    return queries.shape[0] if torch.is_tensor(queries) else queries


class SpilledCache(_Base):
    """Keys and values of all layers in pinned system RAM.

    Hand it to a model on which enable() was called, as past_key_values. It grows
    without a limit; room is doubled, so half of it may be empty. All tokens are kept,
    also those beyond a layer's window.
    config: the model's; attention in chunks is refused.
    reserve: tokens to make room for at the first update.
    pin: False for memory that can be swapped; its copies hold up the program.
    Raises ValueError.
    """

    def __init__(self, config=None, reserve=0, pin=True):
        # Not the base's: its versions want different arguments.
        _refuse_chunks(config)
        self.layers, self.reserve, self.pin = [], reserve, pin

    def __repr__(self):
        return (f"SpilledCache(layers={len(self.layers)}, "
                f"tokens={self.get_seq_length()})")

    def __len__(self):
        return len(self.layers)

    def __getitem__(self, layer):
        return self.layers[layer].keys, self.layers[layer].values

    def __iter__(self):
        return ((each.keys, each.values) for each in self.layers)

    @property
    def is_compileable(self):
        return False

    @property
    def is_sliding(self):
        return [False] * len(self.layers)

    @property
    def is_initialized(self):
        return bool(self.layers) and all(each.is_initialized
                                         for each in self.layers)

    def held_bytes(self):
        """Bytes of system RAM."""
        return sum(room.numel() * room.element_size()
                   for each in self.layers for room in each.room or ())

    def update(self, key_states, value_states, layer_idx, *_, **__):
        """Appends a layer's [batch, heads, tokens, width]. Returns all of its keys
        and values, in RAM. Raises ValueError of what does not fit."""
        while len(self.layers) <= layer_idx:
            self.layers.append(_Layer(self.reserve, self.pin))
        return self.layers[layer_idx].update(key_states, value_states)

    def get_seq_length(self, layer_idx=0, *_, **__):
        """Tokens that a layer holds."""
        return (self.layers[layer_idx].get_seq_length()
                if layer_idx < len(self.layers) else 0)

    def get_mask_sizes(self, queries, layer_idx=0):
        """As a layer's."""
        if layer_idx >= len(self.layers):
            return _count(queries), 0
        return self.layers[layer_idx].get_mask_sizes(queries)

    def get_max_cache_shape(self, *_, **__):
        """-1: there is no limit."""
        return -1

    def get_max_length(self):
        """None: there is no limit, in the words of older versions."""
        return None

    def get_usable_length(self, _, layer_idx=0):
        """Tokens that a layer holds, in the words of older versions."""
        return self.get_seq_length(layer_idx)

    def crop(self, max_length):
        """Forgets all tokens but so many; of a negative number, so many."""
        for each in self.layers:
            each.crop(max_length)

    def reset(self):
        """Forgets all tokens, and keeps the room."""
        for each in self.layers:
            each.reset()

    def reorder_cache(self, beam_idx):
        """Rows of the batch in another order, as a search with beams needs. It
        copies all of the cache."""
        for each in self.layers:
            each.select(beam_idx)

    def batch_select_indices(self, indices):
        """Keeps these rows of the batch."""
        self.reorder_cache(indices)

    def batch_repeat_interleave(self, repeats):
        """Each row of the batch so often."""
        for each in self.layers:
            each.repeat(repeats)


def _refuse_chunks(config):
    if getattr(config, "attention_chunk_size", None):
        raise ValueError("attention in chunks is not supported")


def _mask(*_, attention_mask=None, allow_is_causal_skip=True,
          allow_is_bidirectional_skip=False, use_vmap=False, config=None, **__):
    """Refuses each mask that emuv.attention does not make by itself. In place of
    transformers' functions that make one."""
    _refuse_chunks(config)
    if attention_mask is not None and not bool(attention_mask.all()):
        raise ValueError("the attention mask hides tokens: emuv's attention takes "
                         "batches of rows that are as long, without padding")
    if use_vmap or not (allow_is_causal_skip or allow_is_bidirectional_skip):
        raise ValueError("the model has a mask of its own, or sequences that are "
                         "packed in one row: emuv's attention takes neither")


def _check_mask(mask, queries, keys, causal, window):
    """Refuses a mask that is other than what emuv.attention does anyway. Versions
    of transformers before 4.53 hand one over."""
    seen = mask if mask.dtype == torch.bool or mask.dim() == 2 else mask == 0
    if mask.is_floating_point() and mask.dim() == 4 and \
            not bool((seen | (mask <= -1e4)).all()):
        raise ValueError("the attention mask adds to scores: emuv's attention "
                         "takes no bias")
    seen = seen.bool()[..., :keys]
    due = torch.ones(1, dtype=torch.bool, device=mask.device)
    if mask.dim() == 4 and causal:
        every = due.expand(queries, keys)
        due = every.tril(keys - queries)
        if window is not None:
            due = due & ~every.tril(keys - queries - window)
    if not bool((seen == due).all()):
        raise ValueError("the attention mask hides tokens: emuv's attention takes "
                         "batches of rows that are as long, without padding")


def _attend(module, query, key, value, attention_mask=None, dropout=0.0,
            scaling=None, is_causal=None, **how):
    """emuv.attention as transformers calls it. Returns [batch, queries, heads,
    width], and None for weights. Raises ValueError of what it lacks."""
    for name in ("softcap", "s_aux", "cu_seq_lens_q", "head_mask"):
        if how.get(name) is not None:
            raise ValueError(f"emuv's attention has no {name}")
    if dropout:
        raise ValueError("emuv's attention has no dropout")
    causal = getattr(module, "is_causal", True) if is_causal is None else is_causal
    window = how.get("sliding_window")
    if window is None:
        window = getattr(module, "sliding_window", None)
    if window is not None and not causal:
        raise ValueError("emuv's attention has no window that looks ahead")
    if attention_mask is not None:
        _check_mask(attention_mask, query.shape[2], key.shape[2], causal, window)
    out = attention(query, key, value, causal=bool(causal), window=window,
                    scale=scaling)
    return out.transpose(1, 2).contiguous(), None


def register():
    """Makes attn_implementation="emuv" known to transformers. Raises ImportError
    without transformers 4.48 or later."""
    from transformers import modeling_utils

    if hasattr(modeling_utils, "AttentionInterface"):
        modeling_utils.AttentionInterface.register(NAME, _attend)
    elif hasattr(modeling_utils, "ALL_ATTENTION_FUNCTIONS"):
        modeling_utils.ALL_ATTENTION_FUNCTIONS[NAME] = _attend
    else:
        raise ImportError("emuv.cache needs transformers 4.48 or later")
    try:
        from transformers.masking_utils import AttentionMaskInterface
    except ImportError:
        return
    AttentionMaskInterface.register(NAME, _mask)


def enable(model):
    """Has a model attend by emuv.attention, which reads a SpilledCache. Returns the
    model. Raises ImportError without transformers, ValueError of a model whose
    attention cannot be exchanged."""
    _refuse_chunks(getattr(model, "config", None))
    register()
    if hasattr(model, "set_attn_implementation"):
        model.set_attn_implementation(NAME)
    else:
        model.config._attn_implementation = NAME
    if model.config._attn_implementation != NAME:
        raise ValueError(f"the attention of {type(model).__name__} cannot be "
                         "exchanged")
    return model
