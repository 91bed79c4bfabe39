#!/usr/bin/env python3
"""Runs a test program on some of 1 to 4 ranks: drawn_ranks.py MPIEXEC COUNT PROGRAM [ARGUMENTS]

COUNT numbers of ranks are drawn by TESSERA_SEED and the program's name; without a seed by the clock. The same seed
draws the same ones again, and is handed on.
"""
import os
import pathlib
import random
import subprocess
import sys
import time

MOST_RANKS = 4

mpiexec, count, program = sys.argv[1], int(sys.argv[2]), sys.argv[3]
seed = os.environ.get("TESSERA_SEED") or str(time.time_ns() % 1_000_000_000)
drawn = sorted(random.Random(f"{seed} {pathlib.Path(program).name}").sample(range(1, MOST_RANKS + 1), count))
print(f"TESSERA_SEED={seed} draws {' and '.join(map(str, drawn))} of 1 to {MOST_RANKS} ranks", flush=True)
failed = []
for ranks in drawn:
    command = [mpiexec, "-q", "-n", str(ranks), program, *sys.argv[4:]]
    if subprocess.run(command, env=dict(os.environ, TESSERA_SEED=seed)).returncode != 0:
        failed.append(ranks)
if failed:
    print(f"FAILED on {' and '.join(map(str, failed))} ranks of TESSERA_SEED={seed}")
sys.exit(1 if failed else 0)
