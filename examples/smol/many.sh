#!/usr/bin/env bash
# Train three steps of one seed. Decode 240 sums in 48 sentences that it was not trained on, with a copy of base that is
# only sharpened and with the step of the training that gains as much as the copy. Run it again to resume.
#
#     examples/smol/many.sh runs/paper-smol 0
set -euo pipefail
out=$1 seed=$2
training=$out/many-$seed

rlvr-dir train examples/smol/train.yaml --seeds "$seed" --set dapo.steps=3 --set keep_checkpoints=true \
    --set checkpoint_every=1 --out "$training"
[[ -d $out/sharp ]] || rlvr-dir pair sharpen "$out/base" --temperature 0.5 --out "$out/sharp"

alone() {  # NAME MODEL: the accuracy by which the step is chosen, on other sums
    [[ -d $out/gains/$1 ]] || rlvr-dir eval "$out/base" "$2" -d rl --tasks "$out/data/choose_medium.jsonl" --samples 4 \
        --top-p 0.7 --max-tokens 48 --seed 0 --max-model-len 512 --block-size 32 --max-num-seqs 160 --enforce-eager \
        --no-track --out "$out/gains/$1"
}

decode() {  # NAME MODEL
    for sweep in decision cells; do
        deciders=()
        [[ $sweep == cells ]] && deciders=(--set "parameters.decode.decider.values=[base,rl]")
        [[ -f $out/sweeps/many_${sweep}_$1/summary.json ]] || rlvr-dir sweep run "examples/smol/$sweep.yaml" \
            --no-track --out "$out" --set "name=many_${sweep}_$1" --set "tasks=[$out/data/many_medium.jsonl]" \
            --set sampling.samples=2 --set metric.name=avg_at_2 --set "parameters.decode.tau.ratio=[0.04]" \
            "${deciders[@]}" --set "pair={base: $out/base, rl: $2}"
    done
}

checkpoints=$training/seed-$seed/checkpoints   # two updates are a step
alone sharp "$out/sharp"
model() { [[ $1 == 3 ]] && echo "$training/seed-$seed/rl" || echo "$checkpoints/checkpoint-$((2 * $1))"; }  # STEP
for step in 1 2 3; do alone "step-$step-$seed" "$(model $step)"; done
nearest=$(python -m examples.stage nearest --skip 0 --to "$out/gains/sharp" "$out/gains"/step-{1,2,3}-"$seed")
step=${nearest##*/step-} step=${step%-*}
echo "seed $seed: step $step gains as much as the copy"
decode sharp "$out/sharp"  # the same for every seed
decode "step_$seed" "$(model "$step")"
