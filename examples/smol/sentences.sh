#!/usr/bin/env bash
# Decode 240 sums in 48 sentences that RL was not trained on with base and with the last step of `many.sh`'s training, by
# who decides and who writes, at a gate of finding 2. Run it again to resume.
#
#     examples/smol/sentences.sh runs/paper-smol 0 delta_logp 0.04
set -euo pipefail
out=$1 seed=$2 criterion=$3 ratio=$4
for sweep in decision cells; do
    deciders=()
    [[ $sweep == cells ]] && deciders=(--set "parameters.decode.decider.values=[base,rl]")
    name=sentences_${sweep}_${criterion}_$seed
    [[ -f $out/sweeps/$name/summary.json ]] || rlvr-dir sweep run "examples/smol/$sweep.yaml" --no-track --out "$out" \
        --set "name=$name" --set "tasks=[$out/data/many_medium.jsonl]" --set sampling.samples=2 \
        --set metric.name=avg_at_2 --set "decode.criterion=$criterion" --set "parameters.decode.tau.ratio=[$ratio]" \
        "${deciders[@]}" --set "pair=SmolLM2-135M-$seed=$out/many-$seed/seed-$seed"
done
