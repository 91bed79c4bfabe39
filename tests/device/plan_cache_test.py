"""Plans of cuDNN that one run keeps in a file (--plan-cache) are those of the next: it makes none. What
is wrong with the file costs the plans that are wrong.

Usage: plan_cache_test.py MPIRUN BIN_FOLDER CASES_FOLDER [--short]

--short: only what the device and its library have a say in.
"""
import os
import pathlib
import subprocess
import sys
import tempfile
import time
from random import Random

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


def plans_asked_for(*arguments):
    """As plans_made, of one small call on one rank, and whether damage was warned of."""
    code, text = run(programs / "tessera-verify", "--device", "cuda", "--trials", "1", "--seed", "5", *arguments, cases[0], ranks=1)
    assert code == 0 and text.count("plan cache: ") <= 1, text
    return text.count("cuDNN: plan "), " damaged, removed" in text


def changed(line, random):
    """One bit of the plan's bytes is another."""
    maker, graph, digits, checksum = line.split("\t")
    data = bytearray.fromhex(digits)
    data[random.randrange(len(data))] ^= 1 << random.randrange(8)
    return "\t".join([maker, graph, data.hex(), checksum])


def with_swapped_plans(lines):
    fields = [line.split("\t") for line in lines]
    for own, other in zip(fields, [line.split("\t")[2] for line in lines[1:] + lines[:1]]):
        own[2] = other
    return ["\t".join(f) for f in fields]


def damage(kept):
    """Whatever has become of the file: the numbers are right, only plans that it does not hold are made, and they are kept."""
    random = Random(int(os.environ.get("TESSERA_SEED") or time.time_ns()))
    made, _ = plans_asked_for("--plan-cache", kept)
    good = kept.read_text()
    lines = good.splitlines()
    assert made == len(lines) >= 3, (made, good)
    for _ in range(8):
        kept.write_text("\n".join(changed(line, random) for line in lines) + "\n")
        assert plans_asked_for("--plan-cache", kept) == (made, True), kept.read_text()
    cases_of_damage = [
        ("\n".join(with_swapped_plans(lines)) + "\n", made, True),
        (good[: -random.randrange(2, len(lines[-1]))], 1, True),
        ("\n" + good + "\n", 0, False),
        (good + "cudnn 9", 0, True),
        ("torn\n" + good, 0, True),
        ("".join("\t".join(line.split("\t")[:3]).replace(" fnv1a", "") + "\n" for line in lines), made, False),
    ]
    for text, missing, damaged in cases_of_damage:
        kept.write_text(text)
        assert plans_asked_for("--plan-cache", kept) == (missing, damaged), text
        assert plans_asked_for("--plan-cache", kept) == (0, False), (text, kept.read_text())
    # Ranks that meet damage at once warn of it once, and keep what is whole.
    for text, _, damaged in cases_of_damage[1:5]:
        kept.write_text(text)
        for warnings in (int(damaged), 0):
            code, said = run(programs / "tessera-verify", "--device", "cuda", "--trials", "1", "--seed", "5", "--plan-cache",
                             kept, cases[0], ranks=4)
            assert code == 0 and said.count(" damaged, removed") == warnings, (text, said)
        left = kept.read_text().splitlines()
        assert all(line in left for line in text.splitlines() if line in lines), (text, left)


def refused(said, *command, ranks, **extra):
    code, text = run(*command, ranks=ranks, TESSERA_DEADLINE="60", **extra)
    assert code != 0 and text.count("plan cache: ") == 1 and said in text, (command, code, text)


def unusable(folder):
    """Refused before the first plan, on all ranks in one line; also where one rank alone has such a file."""
    for program in ("tessera-verify", "tessera-winds", "tessera-relief", "tessera-bench"):
        command = [programs / program, "--device", "cuda", *(cases[:1] if program == "tessera-verify" else [])]
        refused("No such file or directory (on all 2 ranks)", *command, "--plan-cache", folder / "none/plans", ranks=2)
    refused("is a folder", programs / "tessera-verify", "--device", "cuda", cases[0], ranks=1, TESSERA_CUDNN_PLANS=str(folder))
    alone = 'test "$OMPI_COMM_WORLD_RANK" = 1 && export TESSERA_CUDNN_PLANS=/dev/null; exec "$0" "$@"'
    refused("is a device or a pipe, no file of plans (on rank 1 of 3)", "bash", "-c", alone, programs / "tessera-verify", "--device",
            "cuda", cases[0], ranks=3)


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
    refused("is no file of plans", programs / "tessera-verify", "--device", "cuda", "--plan-cache", kept, cases[0], ranks=1)
    assert kept.read_text() == "not a plan\n"
    if "--short" not in sys.argv[4:]:
        damage(pathlib.Path(folder) / "damaged")
        unusable(pathlib.Path(folder))
for program in ("tessera-verify", "tessera-winds", "tessera-relief", "tessera-bench"):
    files = cases if program == "tessera-verify" else []
    code, text = run(programs / program, "--plan-cache", "plans", *files, ranks=1)
    assert code != 0 and "keeps no plans" in text, (program, code, text)
