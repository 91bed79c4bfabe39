#!/usr/bin/env python3
"""What the host spends on calls that send, on 2 ranks: sending_limit_test.py MPIEXEC BENCH

On an emulated device that accepts all work and carries none of it out, in processor time, since other programs may hold
the cores: no call takes more than twice what tessera-bench allows it. A device that works in the calls is found out.
"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile

mpiexec, program = sys.argv[1:3]
SLACK = 2  # a processor that others use, too, is slower than one that is alone


def measured(*arguments, **variables):
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "sending.jsonl"
        command = [mpiexec, "-q", "-n", "2", program, "--device", "cuda", "--only", "sending", "--json", str(path), *arguments]
        run = subprocess.run(command, env=dict(os.environ, **variables), stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                             text=True)
        if run.returncode != 0:
            sys.exit(f"{' '.join(command)}: status {run.returncode}\n{run.stdout}")
        return [json.loads(line) for line in path.read_text().splitlines()]


def over(lines):
    return [f"{r['case']}: {r['cpu_s'] * 1e6:.1f} us of {SLACK} x {r['limit_s'] * 1e6:.0f}"
            for r in lines if r["cpu_s"] > SLACK * r["limit_s"]]


# The best of several programs: in one that begins on a busy processor all figures are high.
runs = [measured("--repeats", "15", TESSERA_EMULATED_INSTANT="1") for _ in range(3)]
best = [min(same, key=lambda r: r["cpu_s"]) for same in zip(*runs)]
for r in best:
    print(f"{r['case']:45} {r['cpu_s'] * 1e6:6.2f} us, allowed {r['limit_s'] * 1e6:3.0f}")
if len(best) < 20:
    sys.exit(f"{len(best)} calls were measured, which are not all")
if not over(measured("--quick", TESSERA_EMULATED_INSTANT="0")):
    sys.exit("a device that works in the calls is not found out")
if late := over(best):
    sys.exit("over the limit: " + "; ".join(late))
