#!/usr/bin/env python3
"""Runs a test program on some numbers of ranks: drawn_ranks.py MPIEXEC COUNT RANKS PROGRAM [ARGUMENTS]

COUNT of RANKS, numbers with commas between them, are drawn by TESSERA_SEED, the program's name and TESSERA_EMULATED_SEED; without a seed by the clock. The same seed
draws the same ones again, and is handed on.
"""
import os
import pathlib
import random
import subprocess
import sys
import time

mpiexec, count, program = sys.argv[1], int(sys.argv[2]), sys.argv[4]
allowed = [int(ranks) for ranks in sys.argv[3].split(",")]
seed = os.environ.get("TESSERA_SEED") or str(time.time_ns() % 1_000_000_000)
run = f"{seed} {pathlib.Path(program).name} {os.environ.get('TESSERA_EMULATED_SEED', '')}"
drawn = sorted(random.Random(run).sample(allowed, count))
print(f"TESSERA_SEED={seed} draws {' and '.join(map(str, drawn))} of {sys.argv[3]} ranks", flush=True)
failed = []
for ranks in drawn:
    command = [mpiexec, "-q", "-n", str(ranks), program, *sys.argv[5:]]
    if subprocess.run(command, env=dict(os.environ, TESSERA_SEED=seed)).returncode != 0:
        failed.append(ranks)
if failed:
    print(f"FAILED on {' and '.join(map(str, failed))} ranks of TESSERA_SEED={seed}")
sys.exit(1 if failed else 0)
