# PYTHON=/path/to/python chooses the Python; otherwise one is found by trying (dev/bootstrap.sh).
.DEFAULT_GOAL := help
.PHONY: help demo demo-reset install test test-real controlplane ollama faults bench lint fmt messages lock

RUN = .venv/bin/python -m

help: ## Show this
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/make \1|\2/p' $(MAKEFILE_LIST) | awk -F'|' '{ printf "%-20s %s\n", $$1, $$2 }'

demo: ## Start the portal with everything it needs (PORT=, DATABASE_URL=, REDIS_URL=, KUBECONFIG=, CLUSTER=controlplane)
	@sh dev/bootstrap.sh demo
	@exec $(RUN) dev.demo

demo-reset: ## Empty the demo's data
	@sh dev/bootstrap.sh demo
	@exec $(RUN) dev.demo --reset

install: ## Make the environment for development
	@sh dev/bootstrap.sh dev

test: install ## Run every check, as CI does
	@exec $(RUN) dev.check

controlplane: install ## Build etcd and the Kubernetes control plane (kept in ~/.cache)
	@$(RUN) dev.controlplane.build

ollama: install ## Build a real Ollama server for the CPU (kept in ~/.cache)
	@$(RUN) dev.ollama.build

test-real: controlplane ollama ## Run the tests on the real control plane and a real Ollama
	@exec $(RUN) pytest -m real

faults: install ## Let everything fail while orders run, and count what was lost (ARGS='--seed 1 --count 100')
	@exec $(RUN) dev.faults $(ARGS)

bench: install ## Measure it (CLUSTER=controlplane, ARGS='--only pages')
	@exec $(RUN) dev.bench $(if $(CLUSTER),--cluster $(CLUSTER)) $(ARGS)

lint: install ## Run the checks without the tests
	@exec $(RUN) dev.check --static

fmt: install ## Format the code and mend what the linter can
	@$(RUN) ruff check --fix-only --quiet .
	@$(RUN) ruff format .

messages: install ## Update and compile the German catalogue
	@$(RUN) dev.messages update

lock: install ## Lock requirements/*.in anew (ARGS=--upgrade)
	@dev/lock.sh $(ARGS)
