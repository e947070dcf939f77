# Two commands: make book, make test. Each makes its own environment in .venv from requirements.lock, once.

PYTHON ?= python3
VENV   := .venv
RUN    := $(VENV)/bin/python
READY  := $(VENV)/.ready
HTML   := _build/html
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.PHONY: book test run student slides pdf site colab variants release clean distclean help

help:
	@echo "make book                    notebooks executed, book in _build/html"
	@echo "make test                    tests, a smoke run of every notebook, the book with warnings as errors"
	@echo "make run NB=name SCALE=smoke one notebook into build/run (ARGS='-p name value' for more parameters)"
	@echo "make student                 notebooks without solutions and all that they need, a zip in build/student"
	@echo "make slides                  slides of six sessions, in build/slides; they work offline"
	@echo "make pdf                     the book as one file, _build/cevit.pdf; printed by an installed Chromium"
	@echo "make site                    book, students' zip, slides and PDF beside each other, as the site has them"
	@echo "make variants SEED=17        exercises with other numbers and their key, in build/variants"
	@echo "make colab REPOSITORY=o/n    notebooks with a set-up cell for Colab, in build/colab"
	@echo "make release                 what a release holds, in build/release"
	@echo "make clean                   remove what was built, keep the environment; make distclean removes it too"

# an unfinished installation leaves no stamp behind, so the next call starts it afresh
$(READY): requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; v = sys.version_info; sys.exit(None if v >= (3, 11) else f"Python 3.11 or newer is needed, this is {v[0]}.{v[1]}: try make PYTHON=python3.12")'
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { echo "this Python has no venv module; on Debian and Ubuntu: apt-get install python3-venv" >&2; exit 1; }
	@mkdir -p $(VENV); mkdir $(VENV)/.busy 2>/dev/null || { echo "another make installs into $(VENV); wait until it is done (if none runs: rmdir $(VENV)/.busy)" >&2; exit 1; }; \
	trap 'rmdir $(VENV)/.busy' EXIT; trap 'exit 1' HUP INT TERM; set -e; \
	test -x $(RUN) || $(PYTHON) -m venv $(VENV); \
	echo "installing into $(VENV), once: about 3 GB to fetch, 7 GB on disk, nearly all of it PyTorch; 3 to 10 minutes"; \
	$(RUN) -m pip install --progress-bar on -r requirements.lock; \
	$(RUN) -m pip install --quiet --no-deps -e .; \
	touch $@

book: $(READY)
	$(RUN) -m tools.pages build

test: $(READY)
	$(RUN) -m tools.pages test

run: $(READY)
	@test -n "$(NB)" || { echo "name a notebook: make run NB=copula_loss SCALE=smoke" >&2; exit 2; }
	@test -f notebooks/$(basename $(notdir $(NB))).md || { echo "no notebook notebooks/$(basename $(notdir $(NB))).md; there are: $(basename $(notdir $(wildcard notebooks/*.md)))" >&2; exit 2; }
	$(VENV)/bin/cevit run notebooks/$(basename $(notdir $(NB))).md --output build/run/$(basename $(notdir $(NB))).ipynb $(if $(SCALE),-p scale $(SCALE)) $(ARGS)

student: $(READY)
	rm -rf build/student
	$(RUN) -m tools.publication student

slides: book
	$(RUN) -m tools.publication slides

pdf: book
	$(RUN) -m tools.publication pdf

# pages link to these places where the book has an address
site: student slides pdf
	cp build/student/*.zip $(HTML)/student.zip
	rm -rf $(HTML)/slides && cp -r build/slides $(HTML)/slides
	cp _build/cevit.pdf $(HTML)/cevit.pdf

colab: $(READY)
	$(RUN) -m tools.publication colab $(REPOSITORY)

variants: $(READY)
	$(RUN) -m tools.publication variants $(SEED)

release: site
	$(RUN) -m tools.publication assets
	cp build/student/*.zip _build/cevit.pdf build/release/
	$(RUN) -m zipfile -c build/release/slides.zip build/slides

clean:
	rm -rf _build build book/executed .pytest_cache .ruff_cache

distclean: clean
	rm -rf $(VENV) *.egg-info
