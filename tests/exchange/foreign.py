"""Files as other programs write them, small: shapes of lm-eval 0.4, of Inspect 0.3 and of Every Eval Ever 0.3."""

import json
import zipfile
from pathlib import Path

# `inspect_log` as the zip that Inspect writes by default, by method 93, which Python's `zipfile` cannot write.
ZSTANDARD = Path(__file__).with_name("zstandard.eval")


def lm_eval_rows(correct=(1, 0, 1), filters=("strict-match", "flexible-extract"), **changes):
    """A line a document and filter, one response each, as gsm8k's are."""
    rows = []
    for i, right in enumerate(correct):
        for each in filters:
            doc = {"question": f"What is {i} + 1?", "answer": f"so #### {i + 1}"}
            arguments = {"gen_args_0": {"arg_0": f"Q {i}", "arg_1": {"until": ["Q:"], "do_sample": False}}}
            row = {
                "doc_id": i,
                "doc": doc,
                "target": str(i + 1),
                "arguments": arguments,
                "resps": [[rf"It is \boxed{{{i + 1 if right else 77}}}"]],
                "filtered_resps": [str(i + 1)],
                "filter": each,
                "metrics": ["exact_match"],
                "exact_match": float(right if each == filters[0] else 1),
            }
            rows.append({**row, **changes})
    return rows


def write_lm_eval(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def inspect_log(correct=((1, 0), (1, 1)), **changes):
    """A log of two epochs, with usage, a reasoning part, and a text that is kept as an attachment."""
    samples = []
    for i, row in enumerate(correct):
        for epoch, right in enumerate(row, 1):
            text = rf"so \boxed{{{i + 1 if right else 77}}}"
            content = [{"type": "reasoning", "reasoning": "hm"}, {"type": "text", "text": "attachment://ab"}]
            sample = {
                "id": i + 1,
                "epoch": epoch,
                "input": [{"role": "system", "content": "be good"}, {"role": "user", "content": f"{i} + 1?"}],
                "target": str(i + 1),
                "output": {
                    "model": "org/its-rl",
                    "choices": [{"message": {"role": "assistant", "content": content}, "stop_reason": "max_tokens"}],
                    "usage": {"input_tokens": 9, "output_tokens": 12, "total_tokens": 21},
                },
                "attachments": {"ab": text},
                "scores": {"match": {"value": "C" if right else "I", "answer": str(i + 1)}},
            }
            samples.append({**sample, **changes})
    config = {"temperature": 0.6, "top_p": 1.0, "max_tokens": 4096}
    about = {"task": "inspect_evals/aime2025", "model": "org/its-rl", "model_generate_config": config}
    plan = {"config": {"top_p": 0.95, "seed": None}}
    return {"version": 2, "status": "success", "eval": about, "plan": plan, "samples": samples}


def write_eval(path, log):
    """The zip that Inspect wrote before it packed with Zstandard."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("header.json", json.dumps({key: log[key] for key in log if key != "samples"}))
        archive.writestr("_journal/start.json", "{}")
        for sample in log["samples"]:
            archive.writestr(f"samples/{sample['id']}_epoch_{sample['epoch']}.json", json.dumps(sample))
    return path


def eee_rows(correct=(True, False), **changes):
    """A line a response, without anything that is optional."""
    return [
        {
            "schema_version": "0.3.0",
            "evaluation_id": "math/org/its-rl/1",
            "model_id": "org/its-rl",
            "evaluation_name": "math",
            "sample_id": f"q{i}",
            "interaction_type": "single_turn",
            "input": {"raw": f"{i} + 1?", "reference": [str(i + 1)]},
            "output": {"raw": [rf"\boxed{{{i + 1 if right else 77}}}"]},
            "answer_attribution": [],
            "evaluation": {"score": float(right), "is_correct": right},
            **changes,
        }
        for i, right in enumerate(correct)
    ]
