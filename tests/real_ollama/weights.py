"""A language model of random weights: a few megabytes that a real Ollama loads and that answers nonsense."""

from __future__ import annotations

from pathlib import Path

import gguf
import numpy

BLOCKS, HEADS, KV_HEADS, WIDTH, FEED, VOCABULARY = 2, 4, 2, 128, 256, 4000


def write(path: Path, context: int = 32768) -> None:
    """Write a llama in GGUF, trained for `context` tokens."""
    chance = numpy.random.default_rng(1)
    writer = gguf.GGUFWriter(str(path), "llama")
    writer.add_block_count(BLOCKS)
    writer.add_context_length(context)
    writer.add_embedding_length(WIDTH)
    writer.add_feed_forward_length(FEED)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(WIDTH // HEADS)
    writer.add_vocab_size(VOCABULARY)
    writer.add_file_type(0)
    tokens, kinds = _vocabulary()
    writer.add_tokenizer_model("llama")
    writer.add_tokenizer_pre("default")
    writer.add_token_list(tokens)
    writer.add_token_scores([-float(number) for number in range(VOCABULARY)])
    writer.add_token_types(kinds)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_unk_token_id(0)
    writer.add_add_bos_token(True)

    def add(name: str, *shape: int) -> None:
        values = chance.standard_normal(shape, dtype=numpy.float32) * 0.05
        writer.add_tensor(name, values if len(shape) > 1 else numpy.ones(shape, dtype=numpy.float32))

    add("token_embd.weight", VOCABULARY, WIDTH)
    add("output_norm.weight", WIDTH)
    add("output.weight", VOCABULARY, WIDTH)
    small = WIDTH * KV_HEADS // HEADS
    for number in range(BLOCKS):
        block = f"blk.{number}"
        add(f"{block}.attn_norm.weight", WIDTH)
        add(f"{block}.attn_q.weight", WIDTH, WIDTH)
        add(f"{block}.attn_k.weight", small, WIDTH)
        add(f"{block}.attn_v.weight", small, WIDTH)
        add(f"{block}.attn_output.weight", WIDTH, WIDTH)
        add(f"{block}.ffn_norm.weight", WIDTH)
        add(f"{block}.ffn_gate.weight", FEED, WIDTH)
        add(f"{block}.ffn_up.weight", FEED, WIDTH)
        add(f"{block}.ffn_down.weight", WIDTH, FEED)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _vocabulary() -> tuple[list[bytes], list[int]]:
    kind = gguf.TokenType
    tokens = [b"<unk>", b"<s>", b"</s>", *(b"<0x%02X>" % number for number in range(256))]
    kinds = [kind.UNKNOWN, kind.CONTROL, kind.CONTROL, *[kind.BYTE] * 256]
    letters = "abcdefghijklmnopqrstuvwxyz"
    words = [
        *letters,
        *(a + b for a in letters for b in letters),
        *(f"▁{a}{b}" for a in letters for b in letters),
    ]
    words += [f"w{number}" for number in range(VOCABULARY - len(tokens) - len(words))]
    return [*tokens, *(word.encode() for word in words)], [
        int(one) for one in [*kinds, *[kind.NORMAL] * len(words)]
    ]
