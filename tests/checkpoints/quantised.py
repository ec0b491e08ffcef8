"""Quantised copies of a checkpoint, as libraries write them, each with its weights as they are dequantised by hand."""

import json
import shutil
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

LARGEST = {"W8A8": 127.0, "FP8_DYNAMIC": 448.0}  # code, by the preset of compressed-tensors
WEIGHTS = "model.safetensors"


def compressed(source, place, preset):
    """Write a checkpoint as int8 or fp8 of compressed-tensors, a scale a row; return its weights by hand."""
    from compressed_tensors.compressors import ModelCompressor
    from compressed_tensors.quantization import (
        QuantizationConfig,
        QuantizationStatus,
        apply_quantization_config,
        preset_name_to_scheme,
    )
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model = AutoModelForCausalLM.from_pretrained(source, dtype=torch.float32)
    scheme = preset_name_to_scheme(preset, ["Linear"])
    apply_quantization_config(model, QuantizationConfig(config_groups={"all": scheme}, ignore=["lm_head"]))
    for module in model.modules():
        if getattr(module, "quantization_scheme", None) is not None:
            module.weight_scale.data = module.weight.data.abs().amax(1, keepdim=True) / LARGEST[preset]
            module.quantization_status = QuantizationStatus.FROZEN
    compressor = ModelCompressor.from_pretrained_model(model)
    assert compressor is not None
    compressor.compress_model(model)
    model.save_pretrained(place)
    compressor.update_config(place)
    AutoTokenizer.from_pretrained(source).save_pretrained(place)
    stored = load_file(Path(place, WEIGHTS))
    scales = {name.removesuffix("_scale"): scale for name, scale in stored.items() if name.endswith("_scale")}
    return {
        name: tensor.float() * scales[name] if name in scales else tensor
        for name, tensor in stored.items()
        if not name.endswith("_scale")
    }


def plain(source, place, weights):
    """Copy a checkpoint with these weights in place of its own."""
    shutil.copytree(source, place)
    save_file({name: tensor.contiguous() for name, tensor in weights.items()}, place / WEIGHTS, {"format": "pt"})
    return place


GGUF_NAMES = {
    "model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output", "model.layers.": "blk.",
    "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down", "post_attention_layernorm": "ffn_norm", "input_layernorm": "attn_norm",
}  # fmt: skip


def gguf_copy(source, place, tokens=None):
    """Write a Qwen2 checkpoint as a GGUF file of Q8_0 (vectors in float32); return its weights by hand."""
    import gguf

    config, tokenizer = (json.loads(Path(source, name).read_text()) for name in ("config.json", "tokenizer.json"))
    writer = gguf.GGUFWriter(place, "qwen2")
    for add, value in {
        "context_length": config["max_position_embeddings"], "embedding_length": config["hidden_size"],
        "block_count": config["num_hidden_layers"], "feed_forward_length": config["intermediate_size"],
        "head_count": config["num_attention_heads"], "head_count_kv": config["num_key_value_heads"],
        "layer_norm_rms_eps": config["rms_norm_eps"], "vocab_size": config["vocab_size"],
    }.items():  # fmt: skip
        getattr(writer, f"add_{add}")(value)
    vocabulary = {**tokenizer["model"]["vocab"], **{each["content"]: each["id"] for each in tokenizer["added_tokens"]}}
    ordered = tokens or sorted(vocabulary, key=lambda token: vocabulary[token])
    merges = [merge if isinstance(merge, str) else " ".join(merge) for merge in tokenizer["model"]["merges"]]
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list(ordered)
    writer.add_token_types([gguf.TokenType.NORMAL] * len(ordered))
    writer.add_token_merges(merges)
    writer.add_eos_token_id(0)
    weights = {}
    for name, tensor in load_file(Path(source, WEIGHTS)).items():
        kind = gguf.GGMLQuantizationType.F32 if tensor.ndim == 1 else gguf.GGMLQuantizationType.Q8_0
        codes = gguf.quants.quantize(tensor.float().numpy(), kind)
        weights[name] = torch.from_numpy(gguf.quants.dequantize(codes, kind).reshape(tuple(tensor.shape)).copy())
        for ours, theirs in GGUF_NAMES.items():
            name = name.replace(ours, theirs)
        writer.add_tensor(name, codes, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return weights
