"""Plans of cuDNN that one run keeps in a file (--plan-cache) are those of the next: it makes none.

Usage: plan_cache_test.py MPIRUN BIN_FOLDER CASES_FOLDER
"""
import os
import pathlib
import subprocess
import sys
import tempfile

mpirun, programs, cases = sys.argv[1], pathlib.Path(sys.argv[2]), sorted(pathlib.Path(sys.argv[3]).glob("conv1d*.safetensors"))
environment = dict(os.environ, TESSERA_LOG="debug", TESSERA_LOG_RANKS="all")
environment.pop("TESSERA_CUDNN_PLANS", None)


def run(*arguments, ranks=2, **extra):
    done = subprocess.run([mpirun, "-q", "-n", str(ranks), *map(str, arguments)], capture_output=True, text=True,
                          env=dict(environment, **extra))
    return done.returncode, done.stdout + done.stderr


def plans_made(*arguments, **extra):
    code, text = run(programs / "tessera-verify", "--device", "cuda", "--trials", "2", "--seed", "5", *arguments, *cases, **extra)
    assert code == 0, text
    return text.count("cuDNN: plan ")


with tempfile.TemporaryDirectory() as folder:
    kept = pathlib.Path(folder) / "plans"
    assert plans_made("--plan-cache", kept) > 0
    assert kept.read_text().count("\n") > 0
    assert plans_made("--plan-cache", kept) == 0
    assert plans_made(TESSERA_CUDNN_PLANS=str(kept)) == 0
    lines = kept.read_text().splitlines(keepends=True)
    # Of another version of cuDNN: made anew.
    kept.write_text("".join(line.replace("cudnn ", "cudnn 1", 1) for line in lines))
    assert plans_made("--plan-cache", kept) > 0
    kept.write_text("not a plan\n")
    code, text = run(programs / "tessera-verify", "--device", "cuda", "--plan-cache", kept, cases[0], ranks=1)
    assert code != 0 and "is no file of plans" in text, text
for program in ("tessera-verify", "tessera-winds", "tessera-relief", "tessera-bench"):
    files = cases if program == "tessera-verify" else []
    code, text = run(programs / program, "--plan-cache", "plans", *files, ranks=1)
    assert code != 0 and "keeps no plans" in text, (program, code, text)
