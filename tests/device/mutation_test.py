#!/usr/bin/env python3
"""A broken device must turn the tests red: mutation_test.py MPIEXEC BUILD CASES

Every program passes as it is, and fails with each of the faults of emulated/mutation.h that concern it. Most faults are
classes: every third wait, every stride. Single waits are drawn by TESSERA_SEED.
"""
import os
import pathlib
import random
import re
import subprocess
import sys

mpiexec, build, cases = sys.argv[1], pathlib.Path(sys.argv[2]), pathlib.Path(sys.argv[3])

# fault -> programs of which at least one must fail
MEMORY = (1, [build / "tests/test_device_memory"])
MESSAGES = (2, [build / "tests/test_device_nccl"])
BUFFERS = (2, [build / "tests/test_device_nccl", "buffers live until*"])
FREED = (2, [build / "tests/test_device_nccl", "memory that is given back*"])
AWARE = (2, [build / "tests/test_device_nccl"],
         {"TESSERA_CUDA_COMM": "mpi", "TESSERA_EMULATED_CUDA_AWARE_MPI": "1"})
KERNELS = (1, [build / "tests/test_device_kernels"])
CONVOLUTIONS = (1, [build / "bin/tessera-verify", "--device", "cuda", "--trials", "1", *sorted(cases.glob("conv2d*"))])
ATTENTION = (1, [build / "tests/test_attention"])
RING = (2, [build / "tests/test_attention", "*ring*"])
OVERLAP = (2, [build / "tests/test_device_overlap"])
FAULTS = [
    ("events-done", [MEMORY]),
    ("events-done", [AWARE]),
    ("skip-waits", [MEMORY]),
    ("skip-waits", [MESSAGES]),
    ("reuse-early", [BUFFERS]),
    ("reuse-early", [FREED]),
    ("stride", [KERNELS]),
    ("stride", [CONVOLUTIONS]),
    ("stride", [ATTENTION]),
    ("skip-waits", [RING]),
    # Of these no number is wrong: computing and messages do not overlap.
    ("one-stream", [OVERLAP]),
    ("wait-at-once", [OVERLAP]),
]
# Programs of which single waits are left out, one in a run, in at most so many runs: one of them fails. A wait that another
# one stands for is missed by nobody, which goes for one in three of the first program and about half of the second.
SINGLE = [(MEMORY, 10), (MESSAGES, 16)]
# What only the poison in memory that was given back finds: without it these pass.
POISONED = [("reuse-early,no-poison", FREED)]


def run(program, fault):
    ranks, command, settings = program if len(program) == 3 else (*program, {})
    environment = dict(os.environ, TESSERA_TEST_DEVICE="cuda", **settings)
    environment.pop("TESSERA_EMULATED_MUTATION", None)
    if fault:
        environment["TESSERA_EMULATED_MUTATION"] = fault
    return subprocess.run([mpiexec, "-q", "-n", str(ranks), *map(str, command)], env=environment, timeout=200,
                          capture_output=True, text=True)


def passes(program, fault):
    return run(program, fault).returncode == 0


def missing_wait(program, most):
    """The number of a wait without which the program fails, and how many were tried; None: of none."""
    counted = run(program, "skip-waits=0")
    waits = [int(n) for n in re.findall(r"emulated device: (\d+) waits", counted.stderr)]
    if counted.returncode != 0 or len(waits) != program[0]:
        sys.exit(f"skip-waits=0: status {counted.returncode}\n{counted.stdout}{counted.stderr}")
    drawn = random.Random(int(os.environ.get("TESSERA_SEED", "1"))).sample(range(1, min(waits) + 1), most)
    for tried, n in enumerate(drawn, 1):
        if not passes(program, f"skip-waits={n}"):
            return n, tried
    return None, most


# Each program once.
as_it_is = {}


def is_healthy(program):
    if id(program) not in as_it_is:
        as_it_is[id(program)] = passes(program, None)
    return as_it_is[id(program)]


failed = 0
for fault, programs in FAULTS:
    healthy = all(is_healthy(p) for p in programs)
    found = any(not passes(p, fault) for p in programs)
    print(f"{fault}: {'passes as it is' if healthy else 'FAILS AS IT IS'}, {'found' if found else 'NOT FOUND'}")
    failed += not (healthy and found)
for program, most in SINGLE:
    number, tried = missing_wait(program, most)
    print(f"skip-waits=N: {'NOT FOUND' if number is None else f'wait {number} is missed'} in {tried} of {most} runs")
    failed += number is None
for fault, program in POISONED:
    missed = passes(program, fault)
    print(f"{fault}: {'not found, as it should be' if missed else 'FOUND WITHOUT THE POISON'}")
    failed += not missed
for fault in ("reuse-earlier", "skip-waits=", "skip-waits=1x"):
    misspelt = passes(FREED, fault)
    print(f"{fault}: {'ACCEPTED' if misspelt else 'refused'}")
    failed += misspelt
sys.exit(1 if failed else 0)
