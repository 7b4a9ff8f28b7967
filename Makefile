# make bench   measure what this machine has; tables, a verdict, and a page in reports/local/
# make test    the short test suite      make test-all   every test        make lint    ruff, mypy, import-linter
# make fuzz    2,000 drawn inputs of every kind for the command, each judged by how it ends; FUZZ_ARGS="--inputs 20000 --seed 7"
# make bars    the figures that the project promises, measured; BARS_ARGS="conv list" measures some      make gpu-plan, make gpu    an NVIDIA GPU, by its agenda
# make publish   measure this machine for 45 minutes, suites and claims, and publish a report in reports/<machine>/
# make mutants   what the emulator does not notice when cuda/ is broken on purpose
# make conformance   what is called of the packages of a GPU, bound to these packages; no GPU is needed
# make pictures   the pictures of README.md, from the latest run and from watch
# make more      what tests use beside: PyTorch, Kernel Tuner, Parsl      make lock    newest versions in constraints.txt
# make ladder    docs/ladder.md: each rung with its resources

PYTHON ?= python3
BIN := .venv/bin
BENCH_SUITES ?= founding smoke
# SciPy brings a second build of the OpenBLAS that NumPy has; copies and multiply-adds are measured as ceilings anyway.
# gemm/openblas.tnn transposes B first too, faster than NumPy does.
BENCH_ARGS ?= --kernels '!gemm/scipy.*' --kernels '!gemm/numpy.tnn' --kernels '!copy/*' --kernels '!fma/*'
TEST_ARGS ?=
MUTANTS_ARGS ?=
PUBLISH_ARGS ?=
FUZZ_ARGS ?=
BARS_ARGS ?=

.PHONY: bench test test-all lint fuzz bars publish gpu gpu-plan honest mutants conformance ladder pictures more lock clean

EXTRAS := test,lint,compile,report,export,docs
# Other parts that tests use where they are there; later releases of PyTorch bring gigabytes of CUDA along.
MORE := torch==2.13.0 'kernel-tuner==1.5.*' 'parsl>=2026.10'

.venv/.installed: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "kernelmark: $(PYTHON) is older than 3.11; make PYTHON=python3.12"; exit 2; }
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[$(EXTRAS)]'
	@# As an installation does; where bytecode is not kept, each command would compile all that it imports.
	$(BIN)/python -m compileall -q kernelmark/bench kernelmark/kernels kernelmark
	@# Numba takes half a minute to compile the kernels, once; verifying each compiles it.
	$(BIN)/kernelmark verify smoke --kernels '*/numba.*' --kernels '*/cpu.*' --db .venv/compiled.db >.venv/compiled.log 2>&1 \
		|| { cat .venv/compiled.log; exit 1; }
	@touch $@

bench: .venv/.installed
	@$(BIN)/kernelmark run $(BENCH_SUITES) --csv reports/local/results.csv --report reports/local $(BENCH_ARGS)

# Tests start hundreds of processes, which would each compile all modules where bytecode may not be kept.
test test-all: export PYTHONDONTWRITEBYTECODE =
# Some tests wait for processes and deadlines, so there is one worker more than processors.
test test-all: export PYTEST_XDIST_AUTO_NUM_WORKERS = $(shell expr $$(nproc) + 1)
test test-all: .venv/.installed
	$(BIN)/python -m pytest --numprocesses auto --dist worksteal $(if $(filter test-all,$@),--all) $(TEST_ARGS)

lint: .venv/.installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# Prints its seed, and a line for each fault that calls the command as it was called then.
fuzz: .venv/.installed
	PYTHONPATH=.:tests $(BIN)/python -m fuzz $(FUZZ_ARGS)

bars: .venv/.installed
	$(BIN)/python tools/bars.py $(BARS_ARGS)

# Keeps what it measures in out/publish/, so that it goes on where it was stopped; experiments of claims have the time
# that the suites leave. A noisy run is refused.
publish: .venv/.installed
	PYTHONPATH=.:tools $(BIN)/python tools/publish.py $(PUBLISH_ARGS)

# Judges right results of thousands of drawn problems: none may be called wrong.
honest: .venv/.installed
	$(BIN)/python tools/honest.py $(HONEST_ARGS)

# Removes barriers and guards, shifts bounds, swaps leading dimensions in cuda/, one at a time; prints what survives.
mutants: .venv/.installed
	PYTHONPATH=.:tests $(BIN)/python -m emulator $(MUTANTS_ARGS)

# Python 3.12 is what machines with a GPU have. PyCUDA is taken from .whl/, where make gpu has its wheels; without one,
# what is recorded of it stays. It links to the driver, of which an empty library is enough to import it.
CONFORMANCE_PYTHON ?= $(or $(shell python3.12 -c 'print("python3.12")' 2>/dev/null),$(PYTHON))
build/conformance/installed: tools/data/gpu-packages.txt $(wildcard .whl/*.whl)
	$(CONFORMANCE_PYTHON) -m venv --clear build/conformance
	build/conformance/bin/python -m pip install --quiet --no-deps --requirement $<
	$(if $(filter %.whl,$^),build/conformance/bin/python -m pip install --quiet --no-deps --no-index $(filter %.whl,$^))
	echo | $(CC) -shared -Wl,-soname,libcuda.so.1 -x c - -o build/conformance/libcuda.so.1
	@touch $@

# The environment has 3 GB and is built once.
conformance: build/conformance/installed
	LD_LIBRARY_PATH=build/conformance PYTHONPATH=. build/conformance/bin/python tools/conformance.py

pictures: .venv/.installed
	PYTHONPATH=. $(BIN)/python tools/pictures.py $(PICTURES_ARGS)

ladder: .venv/.installed
	$(BIN)/python tools/ladder.py

# Everything that CI installs beside.
more: .venv/.installed
	$(BIN)/python -m pip install --quiet --constraint constraints.txt $(MORE)

# Takes a few minutes; run `make test-all` with the new versions before you commit them.
lock:
	rm -rf build/lock && $(PYTHON) -m venv build/lock
	build/lock/bin/python -m pip install --quiet --editable '.[$(EXTRAS)]' $(MORE)
	head -1 constraints.txt >build/lock/new
	build/lock/bin/python -m pip freeze --exclude kernelmark | sed 's/+cpu$$//' >>build/lock/new
	mv build/lock/new constraints.txt

# Uses the packages of a GPU machine and the wheels in .whl/, if there are any; no network.
GPU_PYTHON ?= $(if $(wildcard $(BIN)/python),$(BIN)/python,$(PYTHON))
GPU_ARGS ?=
gpu:
	@if ls .whl/*.whl >/dev/null 2>&1; then \
		$(GPU_PYTHON) -m pip install --quiet --no-index --no-deps --upgrade --target .whl/site .whl/*.whl; fi
	PYTHONPATH=.:tools:.whl/site $(GPU_PYTHON) tools/gpu.py $(GPU_ARGS)

# What a slot of 540 s would do, in which order; compiles it into build/, which a copy for the GPU machine takes along.
gpu-plan: .venv/.installed
	PYTHONPATH=.:tools $(BIN)/python tools/gpu.py --plan $(GPU_ARGS)

clean:
	rm -rf .venv reports/local
