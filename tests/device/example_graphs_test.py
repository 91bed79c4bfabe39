#!/usr/bin/env python3
"""What a shipped program asks cuDNN for as it is shipped: example_graphs_test.py MPIRUN RANKS PROGRAM CONFIG [--mesh MESH]

One step with the file's own sizes, on an emulated device that accepts all work and carries none of it out; that takes seconds. The
graphs go to the file of TESSERA_CUDNN_RECORD, which the test cudnn_plans_asked judges. Nothing is computed, so the score at the
end is no number, and a program may end with the refusal to add that up. No other error is accepted.
"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile

mpirun, ranks, program, config, *mesh = sys.argv[1:]
NO_NUMBER = "sums: the errors of the model come to nan over the map, which is not below 1.5e10"
record = pathlib.Path(os.environ["TESSERA_CUDNN_RECORD"])

with tempfile.TemporaryDirectory() as folder:
    # Other tests write to the record at the same time.
    own = pathlib.Path(folder) / "graphs.jsonl"
    command = [mpirun, "-q", "-n", ranks, program, "--config", config, *mesh, "--device", "cuda", "--steps", "1", "--out", folder]
    run = subprocess.run(command, capture_output=True, text=True,
                         env=dict(os.environ, TESSERA_EMULATED_INSTANT="1", TESSERA_CUDNN_RECORD=str(own)))
    # Each rank that has an error may say it.
    errors = {line for line in run.stderr.splitlines() if line.strip()}
    if run.returncode != 0 and errors != {NO_NUMBER}:
        sys.exit(f"{' '.join(command)}: status {run.returncode}\n{run.stdout}\n{run.stderr}")
    if "step 1/1" not in run.stdout + run.stderr:
        sys.exit(f"{' '.join(command)} made no step\n{run.stdout}\n{run.stderr}")
    text = own.read_text() if own.exists() else ""
    kinds = {json.loads(line)["kind"] for line in text.splitlines()}
    if not {"forward", "weight_gradient"} <= kinds:
        sys.exit(f"of a step cuDNN was asked for {sorted(kinds)} only")
    with record.open("a") as out:
        out.write(text)
    print(f"{len(text.splitlines())} graphs of {' and '.join(sorted(kinds))}")
