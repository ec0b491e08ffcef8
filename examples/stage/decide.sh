#!/usr/bin/env bash
# Decode one tiny pair, a sharpened copy of its base, and the step of its training that gains as much as the copy, by who
# decides and who writes. Run it again to resume.
#
#     examples/stage/decide.sh runs/paper-stage seed-1
#
# A placebo has neither the copy nor the step.
set -euo pipefail
out=$1 name=$2
pair=$out/pairs/$name

decode() {  # NAME RL CRITERION SHARES DECIDERS
    for sweep in decision cells; do
        deciders=()
        [[ $sweep == cells ]] && deciders=(--set "parameters.decode.decider.values=$5")
        [[ -f $out/sweeps/tiny_${sweep}_$3_$1/summary.json ]] || rlvr-dir sweep run "examples/stage/$sweep.yaml" \
            --no-track --out "$out" --set "name=tiny_${sweep}_$3_$1" --set "decode.criterion=$3" \
            --set "parameters.decode.tau.ratio=$4" "${deciders[@]}" --set "pair={base: $pair/base, rl: $2}"
    done
}

decode "$name" "$pair/rl" delta_logp "[0.02,0.05,0.2]" "[base,rl,gate]"
decode "$name" "$pair/rl" kl "[0.2]" "[base,rl,gate]"
[[ $name == seed-* || $name == plain-* ]] || exit 0

sharp=$out/pairs/sharp-$name
[[ -d $sharp ]] || rlvr-dir pair sharpen "$pair/base" --temperature 0.5 --out "$sharp"
decode "sharp-$name" "$sharp" delta_logp "[0.02,0.05]" "[base,rl]"

# The step is selected on problems that are not reported: numbers 121 to 240.
for step in 2 4 6; do
    [[ -d $out/gains/$name/step-$step ]] || rlvr-dir eval "$pair/base" "$pair/step-$step" -d rl --tasks tiny_medium \
        --samples 4 --top-p 0.7 --max-tokens 256 --seed 0 --no-track --out "$out/gains/$name/step-$step"
done
[[ -d $out/gains/$name/sharp ]] || rlvr-dir eval "$pair/base" "$sharp" -d rl --tasks tiny_medium \
    --samples 4 --top-p 0.7 --max-tokens 256 --seed 0 --no-track --out "$out/gains/$name/sharp"
step=$(python -m examples.stage nearest --to "$out/gains/$name/sharp" "$out/gains/$name"/step-*)
decode "step-$name" "$pair/$(basename "$step")" delta_logp "[0.02,0.05]" "[base,rl]"
