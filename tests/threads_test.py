"""A rank has as many threads as there are cores for it, unless OMP_NUM_THREADS says otherwise.

Usage: threads_test.py MPIRUN TESSERA_BENCH
"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile

MPIRUN, BENCH = sys.argv[1:3]
CORES = len(os.sched_getaffinity(0))


def threads(ranks, asked=None):
    environment = {k: v for k, v in os.environ.items() if k != "OMP_NUM_THREADS"}
    if asked is not None:
        environment["OMP_NUM_THREADS"] = str(asked)
    with tempfile.TemporaryDirectory() as folder:
        lines = pathlib.Path(folder) / "lines.jsonl"
        done = subprocess.run([MPIRUN, "-q", "-n", str(ranks), BENCH, "ring", "--quick", "--json", str(lines)],
                              env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        assert done.returncode == 0, f"exit code {done.returncode}\n{done.stdout}"
        found = {json.loads(line)["threads"] for line in lines.read_text().splitlines()}
    assert len(found) == 1, found
    return found.pop()


def main():
    for ranks in (1, 2, 3):
        got, want = threads(ranks), max(1, CORES // ranks)
        print(f"{CORES} cores, {ranks} ranks: {got} threads each")
        assert got == want, f"{ranks} ranks on {CORES} cores have {got} threads each, not {want}"
    assert threads(2, asked=3) == 3


main()
