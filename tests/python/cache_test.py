#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""emuv.cache on the host. A layer of attention stands in for a model, and a few
names for Hugging Face's transformers. With those installed, a small Llama answers as
it does with their own cache. Without PyTorch all of it is skipped."""

import copy
import importlib.util
import pathlib
import sys
import types
import unittest
from unittest import mock

sys.dont_write_bytecode = True
PACKAGE = pathlib.Path(__file__).resolve().parent.parent.parent / "python/emuv"

import with_torch  # noqa: E402, F401
import torch  # noqa: E402

sys.path.insert(0, str(PACKAGE.parent))
from emuv import cache as module  # noqa: E402
from emuv.attention import attention  # noqa: E402
from emuv.cache import SpilledCache, enable  # noqa: E402


def made(seed, *size, kind=torch.float32):
    chance = torch.Generator().manual_seed(seed)
    return torch.randn(*size, generator=chance).to(kind)


def layer(**more):
    """Of a model, as far as its attention is told of it."""
    return types.SimpleNamespace(is_causal=True, **more)


class CacheTest(unittest.TestCase):
    def filled(self, tokens=10, layers=2, batch=2, **how):
        """A cache, and what it was given, by its layers."""
        cache, given = SpilledCache(**how), []
        for index in range(layers):
            pair = made(index, batch, 3, tokens, 8), made(9 + index, batch, 3,
                                                          tokens, 4)
            cache.update(*pair, index, {"cache_position": None})
            given.append(pair)
        return cache, given

    def expect(self, cache, given):
        for index, pair in enumerate(given):
            for got, due in zip(cache[index], pair):
                self.assertTrue(torch.equal(got, due))
            self.assertEqual(cache.get_seq_length(index), pair[0].shape[2])

    def test_it_returns_all_that_it_was_given(self):
        cache = SpilledCache()
        self.assertEqual((cache.get_seq_length(), len(cache)), (0, 0))
        k, v = made(1, 2, 3, 40, 8), made(2, 2, 3, 40, 4)
        begin = 0
        for end in (7, 8, 9, 23, 40):
            keys, values = cache.update(k[:, :, begin:end], v[:, :, begin:end], 0)
            begin = end
            self.assertTrue(torch.equal(keys, k[:, :, :end]))
            self.assertTrue(torch.equal(values, v[:, :, :end]))
        self.expect(cache, [(k, v)])
        self.assertEqual(len(list(cache)), 1)

    def test_layers_grow_by_themselves_and_in_any_order(self):
        cache = SpilledCache()
        cache.update(made(1, 1, 1, 5, 8), made(2, 1, 1, 5, 8), 2)
        self.assertEqual([cache.get_seq_length(index) for index in range(4)],
                         [0, 0, 5, 0])
        self.assertFalse(cache.is_initialized)

    def test_room_doubles_so_tokens_seldom_move(self):
        cache, moves, last = SpilledCache(), 0, None
        for turn in range(2000):
            cache.update(made(turn, 1, 1, 1, 8), made(turn, 1, 1, 1, 8), 0)
            now = cache.layers[0].room[0].data_ptr()
            moves, last = moves + (now != last), now
        self.assertEqual(moves, 4)  # 256, 512, 1024, 2048
        self.assertEqual(cache.held_bytes(), 2 * 2048 * 8 * 4)
        self.assertTrue(torch.equal(cache[0][0][:, :, 1234],
                                    made(1234, 1, 1, 1, 8)[:, :, 0]))

    def test_room_that_is_reserved_is_not_left(self):
        cache, _ = self.filled(reserve=1000, layers=1)
        at = cache.layers[0].room[0].data_ptr()
        cache.update(made(1, 2, 3, 990, 8), made(2, 2, 3, 990, 4), 0)
        self.assertEqual(cache.layers[0].room[0].data_ptr(), at)
        self.assertEqual(cache.layers[0].room[0].shape[0], 1000)

    def test_a_deep_copy_goes_on_by_itself(self):
        cache, given = self.filled()
        other = copy.deepcopy(cache)
        other.update(made(7, 2, 3, 5, 8), made(8, 2, 3, 5, 4), 0)
        self.expect(cache, given)
        self.assertEqual(other.get_seq_length(), cache.get_seq_length() + 5)

    def test_room_made_in_inference_mode_is_written_outside_of_it(self):
        cache = SpilledCache()
        with torch.inference_mode():
            cache.update(made(1, 1, 1, 5, 8), made(2, 1, 1, 5, 8), 0)
        with torch.no_grad():
            cache.update(made(3, 1, 1, 1, 8), made(4, 1, 1, 1, 8), 0)
        self.assertEqual(cache.get_seq_length(), 6)

    def test_a_block_of_tokens_is_one_piece_of_memory(self):
        cache, _ = self.filled()
        part = cache[0][0][:, :, 3:7]
        self.assertTrue(part.permute(2, 0, 1, 3).is_contiguous())

    def test_crop_forgets_the_end(self):
        for most, left in ((4, 4), (-4, 6), (10, 10), (50, 10), (0, 0), (-20, 0)):
            cache, given = self.filled()
            cache.crop(most)
            self.expect(cache, [tuple(each[:, :, :left] for each in pair)
                                for pair in given])
        cache, given = self.filled()
        cache.crop(4)
        more = [tuple(each + 1 for each in pair) for pair in given]
        for index, pair in enumerate(more):
            cache.update(*pair, index)
        self.expect(cache, [tuple(torch.cat([one[:, :, :4], other], 2)
                                  for one, other in zip(*both))
                            for both in zip(given, more)])

    def test_reset_forgets_all_and_keeps_the_room(self):
        cache, given = self.filled()
        held = cache.held_bytes()
        cache.reset()
        self.assertEqual(cache.get_seq_length(), 0)
        for index, pair in enumerate(given):
            cache.update(*pair, index)
        self.expect(cache, given)
        self.assertEqual(cache.held_bytes(), held)

    def test_beams_are_put_in_order(self):
        for rows in ([1, 0], [1, 1], [0]):
            cache, given = self.filled()
            cache.reorder_cache(torch.tensor(rows))
            self.expect(cache, [tuple(each[rows] for each in pair)
                                for pair in given])
        cache, given = self.filled()
        cache.batch_repeat_interleave(3)
        self.expect(cache, [tuple(each.repeat_interleave(3, 0) for each in pair)
                            for pair in given])
        cache.batch_select_indices(torch.tensor([True] + [False] * 5))
        self.expect(cache, [tuple(each[:1] for each in pair) for pair in given])
        SpilledCache().reorder_cache(torch.tensor([0]))

    def test_sizes_of_masks_count_what_is_to_come(self):
        cache, _ = self.filled()
        self.assertEqual(cache.get_mask_sizes(3, 0), (13, 0))
        self.assertEqual(cache.get_mask_sizes(torch.arange(10, 13), 1), (13, 0))
        self.assertEqual(cache.get_mask_sizes(3, 7), (3, 0))
        self.assertEqual(cache.get_max_cache_shape(), -1)
        self.assertFalse(cache.is_compileable)
        self.assertEqual(cache.is_sliding, [False, False])

    def test_what_does_not_fit_is_an_error(self):
        cache, _ = self.filled()
        for keys, values in (
                (made(1, 1, 3, 1, 8), made(1, 1, 3, 1, 4)),
                (made(1, 2, 2, 1, 8), made(1, 2, 2, 1, 4)),
                (made(1, 2, 3, 1, 8), made(1, 2, 3, 1, 8)),
                (made(1, 2, 3, 2, 8), made(1, 2, 3, 1, 4)),
                (made(1, 2, 3, 1, 8).double(), made(1, 2, 3, 1, 4).double()),
                (made(1, 2, 3, 1, 8).requires_grad_(), made(1, 2, 3, 1, 4))):
            with self.assertRaises(ValueError):
                cache.update(keys, values, 0)
        self.assertEqual(cache.get_seq_length(), 10)
        with self.assertRaises(ValueError):
            SpilledCache(types.SimpleNamespace(attention_chunk_size=64))


class AttendTest(unittest.TestCase):
    def test_token_by_token_is_all_at_once(self):
        q = made(1, 2, 6, 30, 8)
        k, v = made(2, 2, 2, 30, 8), made(3, 2, 2, 30, 8)
        for window in (None, 7):
            whole = attention(q, k, v, causal=True, window=window, scale=0.5)
            cache, begin = SpilledCache(), 0
            for end in (11, 12, 13, 20, 30):
                there = slice(begin, end)
                keys, values = cache.update(k[:, :, there], v[:, :, there], 0)
                out, weights = module._attend(layer(), q[:, :, there], keys, values,
                                              scaling=0.5, sliding_window=window)
                self.assertIsNone(weights)
                self.assertTrue(out.is_contiguous())
                self.assertLess((out.transpose(1, 2) - whole[:, :, there])
                                .abs().max(), 1e-5)
                begin = end

    def test_a_layer_says_its_window_and_that_it_looks_ahead(self):
        q, k, v = (made(seed, 1, 2, 20, 8) for seed in (1, 2, 3))
        out, _ = module._attend(layer(sliding_window=4), q, k, v)
        self.assertTrue(torch.equal(out.transpose(1, 2),
                                    attention(q, k, v, window=4)))
        module_of = types.SimpleNamespace(is_causal=False)
        out, _ = module._attend(module_of, q, k, v)
        self.assertTrue(torch.equal(out.transpose(1, 2), attention(q, k, v)))
        with self.assertRaises(ValueError):
            module._attend(module_of, q, k, v, sliding_window=4)

    def test_what_it_lacks_is_an_error(self):
        q, k, v = (made(seed, 1, 2, 5, 8) for seed in (1, 2, 3))
        for how in ({"softcap": 30.0}, {"s_aux": torch.zeros(2)}, {"dropout": 0.1},
                    {"cu_seq_lens_q": torch.zeros(2)}):
            with self.assertRaises(ValueError):
                module._attend(layer(), q, k, v, **how)

    def test_a_mask_that_hides_no_more_is_taken_and_any_other_refused(self):
        q, k, v = (made(seed, 2, 2, tokens, 8)
                   for seed, tokens in ((1, 5), (2, 9), (3, 9)))
        for window in (None, 3):
            due = torch.ones(5, 9, dtype=torch.bool).tril(4)
            if window:
                due &= torch.ones(5, 9, dtype=torch.bool).triu(5 - window)
            padded = due[None, None].repeat(2, 1, 1, 1)
            padded[1, :, :, :6] = False
            for mask, fits in ((due[None, None], True), (padded, False)):
                added = torch.zeros(mask.shape).masked_fill(
                    ~mask, torch.finfo(torch.float32).min)
                for each in (mask, added):
                    if fits:
                        module._attend(layer(), q, k, v, each,
                                       sliding_window=window)
                        continue
                    with self.assertRaisesRegex(ValueError, "padding"):
                        module._attend(layer(), q, k, v, each,
                                       sliding_window=window)
        module._attend(layer(), q, k, v, torch.ones(2, 9, dtype=torch.int64))
        with self.assertRaisesRegex(ValueError, "padding"):
            module._attend(layer(), q, k, v, torch.eye(9, dtype=torch.int64)[:2])

    def test_masks_of_padding_packing_and_chunks_are_refused_when_made(self):
        full, padded = torch.ones(2, 9, dtype=torch.bool), torch.eye(9)[:2] > 0
        self.assertIsNone(module._mask(batch_size=2, attention_mask=None))
        self.assertIsNone(module._mask(attention_mask=full, q_length=9))
        self.assertIsNone(module._mask(allow_is_causal_skip=False,
                                       allow_is_bidirectional_skip=True))
        for how in ({"attention_mask": padded}, {"use_vmap": True},
                    {"allow_is_causal_skip": False},
                    {"config": types.SimpleNamespace(attention_chunk_size=8)}):
            with self.assertRaises(ValueError):
                module._mask(batch_size=2, **how)


class RegisterTest(unittest.TestCase):
    """Against the names that transformers has, in its versions."""

    def stand_in(self, parts):
        parts["transformers"] = types.ModuleType("transformers")
        for name, each in parts.items():
            if "." in name:
                setattr(parts["transformers"], name.split(".")[1], each)
        patch = mock.patch.dict(sys.modules, parts)
        patch.start()
        self.addCleanup(patch.stop)

    def registry(self):
        held = {}
        return held, types.SimpleNamespace(register=held.__setitem__)

    def test_a_model_attends_by_it(self):
        functions, interface = self.registry()
        masks, others = self.registry()
        self.stand_in({
            "transformers.modeling_utils": types.SimpleNamespace(
                AttentionInterface=interface),
            "transformers.masking_utils": types.SimpleNamespace(
                AttentionMaskInterface=others)})
        model = types.SimpleNamespace(config=types.SimpleNamespace(
            _attn_implementation="sdpa"))
        model.set_attn_implementation = lambda name: setattr(
            model.config, "_attn_implementation", name)
        self.assertIs(enable(model), model)
        self.assertEqual(model.config._attn_implementation, "emuv")
        self.assertEqual((functions, masks), ({"emuv": module._attend},
                                              {"emuv": module._mask}))
        model.set_attn_implementation = lambda name: None
        model.config._attn_implementation = "eager"
        with self.assertRaises(ValueError):
            enable(model)

    def test_an_older_version_has_a_dictionary_and_no_masks(self):
        functions = {}
        self.stand_in({
            "transformers.modeling_utils": types.SimpleNamespace(
                ALL_ATTENTION_FUNCTIONS=functions),
            "transformers.masking_utils": None})
        model = types.SimpleNamespace(config=types.SimpleNamespace(
            _attn_implementation="sdpa"))
        enable(model)
        self.assertEqual(model.config._attn_implementation, "emuv")
        self.assertEqual(functions, {"emuv": module._attend})

    def test_a_version_without_exchange_is_an_error(self):
        self.stand_in({"transformers.modeling_utils": types.SimpleNamespace()})
        with self.assertRaises(ImportError):
            enable(types.SimpleNamespace(config=None))


@unittest.skipUnless(importlib.util.find_spec("transformers"),
                     "transformers is not installed")
class LlamaTest(unittest.TestCase):
    def models(self):
        from transformers import LlamaConfig, LlamaForCausalLM

        config = LlamaConfig(
            vocab_size=64, hidden_size=64, intermediate_size=96,
            num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
            max_position_embeddings=128)
        torch.manual_seed(1)
        own, other = LlamaForCausalLM(config), LlamaForCausalLM(config)
        other.load_state_dict(own.state_dict())
        return own.eval(), enable(other.eval())

    def test_it_answers_as_with_the_models_own_cache(self):
        from transformers import DynamicCache

        own, other = self.models()
        tokens = torch.randint(64, (2, 20))
        caches = DynamicCache(), SpilledCache()
        with torch.no_grad():
            for part in (tokens[:, :13], tokens[:, 13:14], tokens[:, 14:]):
                due, got = (model(part, past_key_values=cache).logits
                            for model, cache in zip((own, other), caches))
                self.assertLess((got - due).abs().max(), 1e-4)
        self.assertEqual(caches[1].get_seq_length(), 20)

    def test_generate_takes_it(self):
        own, other = self.models()
        tokens = torch.randint(64, (1, 9))
        how = {"max_new_tokens": 8, "do_sample": False, "pad_token_id": 0}
        self.assertTrue(torch.equal(
            own.generate(tokens, **how),
            other.generate(tokens, past_key_values=SpilledCache(), **how)))

    def test_padding_is_refused(self):
        tokens, mask = torch.randint(64, (2, 9)), torch.ones(2, 9)
        mask[0, :3] = 0
        with self.assertRaisesRegex(ValueError, "padding"), torch.no_grad():
            self.models()[1](tokens, attention_mask=mask,
                             past_key_values=SpilledCache())


if __name__ == "__main__":
    torch.set_num_threads(1)
    unittest.main(verbosity=2)
