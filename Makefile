# Every target sets up what it needs: a virtual environment in .venv from the exact versions of requirements/cpu.lock.
# The lock is for Linux x86-64 and Python 3.11. Elsewhere, or on a GPU, see docs/install.md.

SHELL := /bin/bash
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
INSTALL := requirements/install.sh
# Tiny models: one thread is faster than two that wait for each other.
export OMP_NUM_THREADS ?= 1
export TOKENIZERS_PARALLELISM ?= false

# The environments are made beside each other: pip alone keeps one core busy.
MAKEFLAGS += --jobs=2

.DEFAULT_GOAL := help
.PHONY: help demo test test-all lint style typecheck format screenshots coverage hooks ui bench clean setup browser verl-env inspect-env paper-tiny paper-stage paper-smol paper-gemma audit-tiny

help: ## Show this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/  make \1\t\2/' | expand -t 18

setup: $(STAMP) ## Make the virtual environment (the other targets do it themselves)

$(STAMP): requirements/cpu.lock pyproject.toml harness/rlvr_dir_autoload.pth
	$(INSTALL) $(VENV) $<

VERL := .venv-verl
verl-env: $(VERL)/.installed ## verl's own environment, to check and launch trainings with it (1.7 GB)

$(VERL)/.installed: requirements/verl.lock pyproject.toml harness/rlvr_dir_autoload.pth
	$(INSTALL) $(VERL) $<

INSPECT := .venv-inspect
inspect-env: $(INSPECT)/.installed ## Inspect's own environment, to ask `rlvr-dir serve` with it (410 MB)

$(INSPECT)/.installed: requirements/inspect.lock pyproject.toml harness/rlvr_dir_autoload.pth
	$(INSTALL) $(INSPECT) $<

demo: $(STAMP) ## Decode the tiny pair every way, score it, print one table
	$(BIN)/rlvr-dir demo

CHROMIUM := $(VENV)/chromium/.installed
browser: $(CHROMIUM) ## The headless Chromium of the browser tests (210 MB)

$(CHROMIUM): tests/chromium.py $(STAMP)
	$(BIN)/python -m tests.chromium
	@mkdir -p $(@D) && touch $@

# Three processes on two cores, since tests wait for processes of theirs. Files start in the order of collection, the
# longest first (tests/conftest.py), not those with the most tests.
PYTEST := $(BIN)/python -m pytest -n 3 --dist loadfile --no-loadscope-reorder
# Skips for want of these do not fail: no package registry has them, or only `make paper-smol` and `paper-gemma` need
# them.
ALLOW_SKIPS ?= gpu,data,paper,smol
# Types are checked meanwhile: tests that wait leave a quarter of two cores idle. Where they are right nothing is said of
# them, so that the closing line is pytest's.
define checked
@said=$$(mktemp); $(BIN)/basedpyright > $$said & types=$$!; \
$(PYTEST) --allow-skips $(ALLOW_SKIPS) $(1); tested=$$?; \
wait $$types || { cat $$said; tested=1; }; rm $$said; exit $$tested
endef

test: style $(CHROMIUM) ## Format check, lint, types, and the tests of one environment: 8–16 minutes on two cores
	$(call checked,-m "not whole")

test-all: style $(CHROMIUM) $(VERL)/.installed $(INSPECT)/.installed ## The same with every test: verl, Inspect; 22–37 minutes
	$(call checked)

screenshots: $(CHROMIUM) ## Take the README's picture of the playground again
	RLVR_DIR_SCREENSHOTS=1 $(BIN)/python -m pytest -n 0 -q tests/serve/test_playground.py -k picture

coverage: $(STAMP) ## All tests that can run here, and which lines of the package they reach
	$(PYTEST) --cov --cov-report=term:skip-covered

lint: style typecheck ## ruff: format check and lint; basedpyright: types

style: $(STAMP)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .

typecheck: $(STAMP) ## basedpyright alone: types
	$(BIN)/basedpyright

hooks: $(STAMP) ## Check every commit before it is made (pre-commit)
	$(BIN)/pre-commit install

format: $(STAMP) ## ruff: format and fix in place
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

ui: $(STAMP) ## Open the MLflow pages of the last demo (127.0.0.1:5000)
	$(BIN)/rlvr-dir ui --store runs/demo

PAPER := runs/paper-tiny
# All 240 problems of the benchmark, 8 samples each: a sweep by itself asks the first 60.
TINY_SWEEPS := tiny_tau_gamma tiny_on_rl tiny_criteria tiny_controls tiny_interpolate
WHOLE := --set limit=240 --set sampling.samples=8 --set metric.name=avg_at_8
paper-tiny: $(STAMP) ## The paper on the tiny pair: trainings, sweeps, tokens; one report in reports/tiny
	@# Trainings first, whatever is done is kept: three seeds in two processes, plain DAPO once for both sweeps.
	for sweep in tiny_reweight tiny_rollout_top_p; do \
		$(BIN)/rlvr-dir sweep run $$sweep --set 'seeds=[0, 1, 2]' --set workers.count=2 --out $(PAPER) || exit; \
		$(BIN)/rlvr-dir analyse curves $(PAPER)/sweeps/$$sweep --out $(PAPER)/analysis/$$sweep || exit; \
	done
	for sweep in $(TINY_SWEEPS); do \
		$(BIN)/rlvr-dir sweep run $$sweep $(WHOLE) --out $(PAPER) || exit; done
	$(BIN)/rlvr-dir audit --rows tokens --tasks tiny_medium --samples 8 --max-tokens 256 --enforce-eager --no-track \
		--records $(PAPER)/records --out $(PAPER)/audit
	$(BIN)/rlvr-dir eval examples/tiny/decision.yaml --no-track --records $(PAPER)/records --out $(PAPER)/decision
	$(BIN)/rlvr-dir analyse gated $(shell sed -n 's/^  - "\(replace,[^"]*=[0-9.-]*\)"$$/-d \1/p' examples/tiny/decision.yaml) \
		--tasks tiny_medium --samples 8 --max-tokens 512 --enforce-eager --records $(PAPER)/records \
		--out $(PAPER)/decision-analysis
	find reports/tiny -mindepth 1 -maxdepth 1 ! -name README.md -exec rm -rf {} +  # an older report had other figures
	$(BIN)/rlvr-dir report $(TINY_SWEEPS:%=$(PAPER)/sweeps/%/results) \
		$(PAPER)/sweeps/tiny_{reweight,rollout_top_p} --analysis $(PAPER)/audit \
		--analysis $(PAPER)/analysis/tiny_reweight --analysis $(PAPER)/analysis/tiny_rollout_top_p \
		--tokenizer records --title "The paper on the tiny pair" --out reports/tiny
	$(BIN)/rlvr-dir report $(PAPER)/decision --analysis $(PAPER)/decision-analysis --out reports/tiny/decision \
		--title "Who decides, and who writes: fifteen gates of the tiny pair"
	@# Divergence beside entropy: points of tiny_criteria, which are cached.
	$(BIN)/rlvr-dir sweep run tiny_criteria $(WHOLE) --set name=tiny_divergences --set controls=false \
		--set "parameters.decode.criterion.values=[kl,entropy_base]" --no-track --out $(PAPER)
	$(BIN)/python -m examples.stage pairs --one-pair --out $(PAPER)/divergences "tiny pair=$(PAPER)/sweeps/tiny_divergences"
	$(BIN)/python -m examples.stage report --analysis $(PAPER)/divergences --out reports/tiny/divergences \
		--title "The tiny pair: divergence beside entropy"

AUDIT := runs/audit
PLACEBOS := random length own_samples noise
audit-tiny: $(STAMP) ## What is said of RLVR, measured on the tiny pair, and on placebos of it; reports/audit
	for kind in $(PLACEBOS); do test -f $(AUDIT)/pairs/$$kind/build.json || $(BIN)/python -m examples.tiny build \
		--out $(AUDIT)/pairs/$$kind --start harness/rlvr_dir/tiny/weights --training $$kind || exit; done
	rm -rf reports/audit  # an older report may have had other figures
	$(BIN)/rlvr-dir audit --tasks tiny_medium --limit 60 --max-tokens 256 --enforce-eager --low-rank 1,8 --no-track \
		--records $(AUDIT)/records --out reports/audit
	$(BIN)/rlvr-dir audit --tasks tiny_medium --limit 60 --max-tokens 256 --enforce-eager --no-track \
		--beside "step 4 of 8=tiny@base:tiny@4" \
		$(foreach kind,$(PLACEBOS),--beside $(kind)=tiny@base:$(AUDIT)/pairs/$(kind)/rl) \
		--records $(AUDIT)/records --out reports/audit/placebos
	rm reports/audit/audit.json reports/audit/placebos/audit.json  # which name places on this machine

STAGE := runs/paper-stage
SEEDS ?= 1 2 3 4 5
TRUE := $(foreach seed,$(SEEDS),seed-$(seed) plain-$(seed))
PLACEBO := $(foreach kind,random own_samples length,$(addprefix $(kind)-,$(wordlist 1,3,$(SEEDS)))) $(SEEDS:%=noise-%)
DECIDE := $(TRUE) $(filter-out length-%,$(PLACEBO))
KIND_seed := RL
KIND_plain := RL, no fillers
KIND_random := random reward
KIND_length := reward for length
KIND_own_samples := own samples
KIND_noise := noise
KIND_step := matched step
KIND_sharp := sharpened copy
TITLE_cells := Tiny pairs: who decides, and who writes
TITLE_plain := Tiny pairs without fillers: who decides, and who writes
TITLE_placebos := Tiny pairs and placebos of their bases: who decides, and who writes
TITLE_own-samples := Bases trained on their own samples: who decides, and who writes
TITLE_sharpened := Sharpened copies of base, and steps of RL that gain as much
TITLE_plain-sharpened := Without fillers: sharpened copies of base, and steps of RL that gain as much
# The sweeps of a pair, by its kind; and a comparison of sweeps with its report: NAME, SWEEPS, OPTIONS.
DECIDED = $(foreach sweep,decision_delta_logp cells_delta_logp decision_kl cells_kl,\
	"$(KIND_$(firstword $(subst -, ,$(1))))=$(STAGE)/sweeps/tiny_$(sweep)_$(1)")
SHARPENED = $(foreach sweep,decision cells,$(foreach kind,step sharp,\
	"$(KIND_$(kind))=$(STAGE)/sweeps/tiny_$(sweep)_delta_logp_$(kind)-$(1)"))
COMPARED = $(BIN)/python -m examples.stage pairs $(3) --out $(STAGE)/$(1) $(2) && rm -rf reports/stage/$(1) && \
	$(BIN)/python -m examples.stage report --analysis $(STAGE)/$(1) --title "$(TITLE_$(1))" --out reports/stage/$(1) && \
	cp $(STAGE)/$(1)/problems.csv reports/stage/$(1)/
# Two at a time: each has one thread. A pair's name says what it is: pairs/noise-2 is the placebo `noise` of seed-2.
AT_ONCE := xargs -P 2 -I '{}' bash -c
paper-stage: $(STAMP) ## Criteria on true tiny pairs and on placebos, who decides and who writes; reports/stage (hours)
	printf '%s\n' $(TRUE) | $(AT_ONCE) 'pair=$(STAGE)/pairs/{}; name={}; test -f $$pair/build.json || $(BIN)/python -m \
		examples.tiny build --out $$pair --seed $${name#*-} $$([[ {} == plain-* ]] && echo --no-fillers)'
	printf '%s\n' $(PLACEBO) | $(AT_ONCE) 'pair=$(STAGE)/pairs/{}; name={}; test -f $$pair/build.json || $(BIN)/python -m \
		examples.tiny build --out $$pair --seed $${name#*-} --start $(STAGE)/pairs/seed-$${name#*-} --training $${name%-*}'
	printf '%s\n' $(TRUE) $(PLACEBO) | $(AT_ONCE) 'test -f $(STAGE)/sweeps/tiny_stage_{}/summary.json || $(BIN)/rlvr-dir sweep \
		run tiny_stage --no-track --set name=tiny_stage_{} --set "pair=[$(STAGE)/pairs/{}]" --out $(STAGE)'
	$(BIN)/python -m examples.stage pairs --out $(STAGE)/analysis $(foreach name,$(TRUE) $(PLACEBO),\
		"$(KIND_$(firstword $(subst -, ,$(name))))=$(STAGE)/sweeps/tiny_stage_$(name)")
	rm -rf reports/stage
	$(BIN)/python -m examples.stage report --analysis $(STAGE)/analysis \
		--title "True pairs and placebos" --out reports/stage
	@# Who decides, and who writes; sharpened copies and matched steps (preregistered in docs/decisions.md).
	printf '%s\n' $(DECIDE) | PATH="$(abspath $(BIN)):$$PATH" $(AT_ONCE) 'examples/stage/decide.sh $(STAGE) {}'
	$(call COMPARED,cells,$(foreach name,$(filter seed-%,$(DECIDE)),$(call DECIDED,$(name))))
	$(call COMPARED,plain,$(foreach name,$(filter plain-%,$(DECIDE)),$(call DECIDED,$(name))))
	$(call COMPARED,placebos,$(foreach name,$(filter-out plain-% own_samples-%,$(DECIDE)),$(call DECIDED,$(name))))
	$(call COMPARED,own-samples,$(foreach name,$(filter own_samples-%,$(DECIDE)),$(call DECIDED,$(name))))
	$(call COMPARED,sharpened,$(foreach name,$(filter seed-%,$(TRUE)),$(call SHARPENED,$(name))),--flagged 0.1)
	$(call COMPARED,plain-sharpened,$(foreach name,$(filter plain-%,$(TRUE)),$(call SHARPENED,$(name))),--flagged 0.1)

# Goes on where it was killed. A seed at a time on each of two cores: all have one thread.
SMOL := runs/paper-smol
SMOL_SEEDS := 0 1 2 3 4
MANY_SEEDS := 0 1 2 3
AUDITED := $(SMOL)/train-0/seed-0/rl,$(SMOL)/train-1/seed-1/rl,$(SMOL)/train-2/seed-2/rl
SUMS := $(SMOL)/data/decide_medium.jsonl
SMOL_RL = $(BIN)/rlvr-dir $(1) --pair $(SMOL)/train-0/seed-0 --samples 4 --max-tokens 48 --max-model-len 512 \
	--block-size 32 --enforce-eager --records $(SMOL)/records --tasks $(SUMS)
paper-smol: export OMP_NUM_THREADS := 1
paper-smol: $(VENV)/.smol ## The paper on SmolLM2-135M-Instruct and sums in words, five RL seeds: hours; reports/smol
	$(BIN)/python examples/smol/prepare.py $(SMOL)
	@# Who decides and who writes, at gates fixed beforehand (docs/decisions.md).
	printf '%s\n' $(SMOL_SEEDS) | $(AT_ONCE) '$(BIN)/rlvr-dir train examples/smol/train.yaml --seeds {} --out $(SMOL)/train-{} && \
		for gate in "delta_logp [0.02,0.04]" "kl [0.05]"; do set -- $$gate; for sweep in decision cells; do \
		$(BIN)/rlvr-dir sweep run examples/smol/$$sweep.yaml --no-track --out $(SMOL) --set decode.criterion=$$1 \
		--set parameters.decode.tau.ratio=$$2 --set name=smol_$${sweep}_$$1_{} \
		--set "pair=[SmolLM2-135M-{}=$(SMOL)/train-{}/seed-{}]" || exit; done; done'
	printf '%s\n' $(SMOL_SEEDS) | $(AT_ONCE) '$(BIN)/rlvr-dir eval examples/smol/criteria.yaml --pair $(SMOL)/train-{}/seed-{} \
		--records $(SMOL)/records --no-track --out $(SMOL)/criteria-{}'
	@# A copy of base that is only sharpened, in RL's place.
	test -d $(SMOL)/sharp || $(BIN)/rlvr-dir pair sharpen $(SMOL)/base --temperature 0.5 --out $(SMOL)/sharp
	for sweep in decision cells; do $(BIN)/rlvr-dir sweep run examples/smol/$$sweep.yaml --no-track --out $(SMOL) \
		--set parameters.decode.tau.ratio=[0.04] --set name=smol_$${sweep}_sharp --set "pair={base: $(SMOL)/base, rl: $(SMOL)/sharp}" \
		|| exit; done
	@# Other sentences: a step of each training beside the copy that gains as much (preregistered in docs/decisions.md).
	for seed in $(MANY_SEEDS); do PATH="$(abspath $(BIN)):$$PATH" examples/smol/many.sh $(SMOL) $$seed && \
		PATH="$(abspath $(BIN)):$$PATH" examples/smol/sentences.sh $(SMOL) $$seed delta_logp 0.04 || exit; done
	$(BIN)/rlvr-dir eval examples/smol/extrapolate.yaml --records $(SMOL)/records --no-track --out $(SMOL)/extrapolate
	$(call SMOL_RL,eval) -d base --seed 1 --no-track --out $(SMOL)/base-again
	$(call SMOL_RL,audit) --rows tokens --no-track --out $(SMOL)/tokens
	$(BIN)/rlvr-dir analyse curves $(foreach seed,$(SMOL_SEEDS),"seed $(seed)=$(SMOL)/train-$(seed)/seed-$(seed)/log.jsonl") \
		--out $(SMOL)/analysis
	$(BIN)/python -m examples.stage pairs --changed 0.02,0.04 --out $(SMOL)/decided $(foreach seed,$(SMOL_SEEDS),$(foreach \
		of,$(patsubst %,sweeps/smol_%_,decision_delta_logp cells_delta_logp decision_kl cells_kl) criteria-,\
		"SmolLM2-135M=$(SMOL)/$(of)$(seed)"))
	rm -rf reports/smol
	$(BIN)/python -m examples.stage report "seed 0=$(SMOL)/extrapolate" --analysis $(SMOL)/decided --analysis $(SMOL)/tokens \
		--analysis $(SMOL)/analysis \
		--tokenizer $(SMOL)/base --title "SmolLM2-135M-Instruct and sums in words" --out reports/smol
	$(BIN)/rlvr-dir audit $(SMOL)/base $(SMOL)/train-0/seed-0/rl --beside "three seeds=$(SMOL)/base:$(AUDITED)" \
		--tasks $(SUMS) --limit 60 --samples 4 --max-tokens 48 --max-model-len 512 --block-size 32 --enforce-eager \
		--max-num-seqs 160 --records $(SMOL)/records --rows outcomes,tokens,weights --no-track --out reports/smol/audit \
		&& rm reports/smol/audit/audit.json  # which names places on this machine
	@# Results without the places of this machine, for those who go on elsewhere; logs and digests of the trainings.
	for seed in $(SMOL_SEEDS); do mkdir -p reports/smol/{results/seed-$$seed,training} && \
		for file in $(SMOL)/{sweeps/smol_*_*_$$seed/results,criteria-$$seed}/*.json; do sed 's|$(CURDIR)/||g' $$file \
		> reports/smol/results/seed-$$seed/$${file##*/} || exit; done; \
		install -m 644 $(SMOL)/train-$$seed/seed-$$seed/log.jsonl reports/smol/training/seed-$$seed.jsonl || exit; done
	mkdir -p reports/smol/results/sharp && for file in $(SMOL)/sweeps/smol_*_sharp/results/*.json; do \
		sed 's|$(CURDIR)/\(.venv/bin/\)*||g' $$file > reports/smol/results/sharp/$${file##*/} || exit; done
	$(BIN)/rlvr-dir report reports/smol/results/sharp --title "SmolLM2-135M-Instruct beside a sharpened copy" \
		--out reports/smol/sharp
	$(BIN)/python -m examples.stage pairs --one-pair --flagged 0.1 --out $(SMOL)/many $(foreach sweep,decision cells,\
		$(foreach seed,$(MANY_SEEDS),"$(KIND_step)=$(SMOL)/sweeps/many_$(sweep)_step_$(seed)") \
		"$(KIND_sharp)=$(SMOL)/sweeps/many_$(sweep)_sharp")
	$(BIN)/python -m examples.stage report --analysis $(SMOL)/many --out reports/smol/many \
		--title "SmolLM2 on other sentences: a step of RL beside a sharpened copy that gains as much"
	$(BIN)/python -m examples.stage pairs --out $(SMOL)/sentences $(foreach sweep,decision cells,$(foreach seed,$(MANY_SEEDS),\
		"SmolLM2-135M=$(SMOL)/sweeps/sentences_$(sweep)_delta_logp_$(seed)"))
	$(BIN)/python -m examples.stage report --analysis $(SMOL)/sentences --out reports/smol/sentences \
		--title "SmolLM2 on other sentences: RL after three steps, by who decides and who writes"
	cp $(SMOL)/sentences/problems.csv reports/smol/sentences/
	mkdir -p reports/smol/many/training && cp $(SMOL)/many/problems.csv reports/smol/many/
	for seed in $(MANY_SEEDS); do install -m 644 $(SMOL)/many-$$seed/seed-$$seed/log.jsonl \
		reports/smol/many/training/seed-$$seed.jsonl || exit; done
	for of in base-again extrapolate; do mkdir -p reports/smol/results/$$of && for file in $(SMOL)/$$of/*.json; do \
		sed 's|$(CURDIR)/||g' $$file > reports/smol/results/$$of/$${file##*/} || exit; done; done
	(cd $(SMOL) && sha256sum train-*/seed-*/rl/model.safetensors) > reports/smol/training/SHA256SUMS
	install -m 644 $(SMOL)/train-0/train.yaml reports/smol/training

GEMMA := runs/paper-gemma
GEMMA_SEEDS := 0 1 2
paper-gemma: export OMP_NUM_THREADS := 1
paper-gemma: $(VENV)/.gemma ## Gemma 3 270M on the same sums, three RL seeds: who decides, who writes; reports/gemma (hours)
	$(BIN)/python -m examples.smol.gemma $(GEMMA)
	for seed in $(GEMMA_SEEDS); do PATH="$(abspath $(BIN)):$$PATH" examples/smol/gemma.sh $(GEMMA) $$seed || exit; done
	$(BIN)/python -m examples.stage pairs --out $(GEMMA)/decided $(foreach sweep,decision cells,$(foreach seed,$(GEMMA_SEEDS),\
		"Gemma-3-270M=$(GEMMA)/sweeps/gemma_$(sweep)_$(seed)"))
	rm -rf reports/gemma
	$(BIN)/python -m examples.stage report --analysis $(GEMMA)/decided --out reports/gemma \
		--title "Gemma 3 270M and sums in words: who decides, and who writes"
	mkdir reports/gemma/training && cp $(GEMMA)/decided/problems.csv reports/gemma/
	for seed in $(GEMMA_SEEDS); do install -m 644 $(GEMMA)/train-$$seed/seed-$$seed/log.jsonl \
		reports/gemma/training/seed-$$seed.jsonl || exit; done
	(cd $(GEMMA) && sha256sum train-*/seed-*/rl/model.safetensors) > reports/gemma/training/SHA256SUMS

$(VENV)/.%: requirements/%.lock $(STAMP)
	$(BIN)/python -m pip install -qq --disable-pip-version-check --no-compile --no-deps -r $<
	touch $@

bench: $(STAMP) ## Measure decoding speed side by side
	$(BIN)/rlvr-dir bench decode

clean: ## Remove the virtual environment, caches and runs
	rm -rf $(VENV) $(VERL) $(INSPECT) .pytest_cache .ruff_cache build dist runs
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
