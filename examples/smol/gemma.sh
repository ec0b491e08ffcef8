#!/usr/bin/env bash
# Train one seed of Gemma 3 270M on the sums, and decode 240 sums in 48 sentences that it was not trained on with base and
# RL, by who decides and who writes, at the gate of finding 2. Run it again to resume.
#
#     examples/smol/gemma.sh runs/paper-gemma 0
set -euo pipefail
out=$1 seed=$2
training=$out/train-$seed

rlvr-dir train examples/smol/train.yaml --base "$out/base" --data "$out/data/train.jsonl" --seeds "$seed" \
    --set dapo.learning_rate=3e-6 --no-track --out "$training"
for sweep in decision cells; do
    deciders=()
    [[ $sweep == cells ]] && deciders=(--set "parameters.decode.decider.values=[base,rl]")
    name=gemma_${sweep}_$seed
    [[ -f $out/sweeps/$name/summary.json ]] || rlvr-dir sweep run "examples/smol/$sweep.yaml" --no-track --out "$out" \
        --set "name=$name" --set "tasks=[$out/data/many_medium.jsonl]" --set sampling.samples=2 \
        --set metric.name=avg_at_2 --set "parameters.decode.tau.ratio=[0.04]" "${deciders[@]}" \
        --set engine.max_num_seqs=64 --set engine.kv_cache_gib=1 --set "pair=Gemma-3-270M-$seed=$training/seed-$seed"
done
