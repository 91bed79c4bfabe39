"""The library of the CPU build has nothing of CUDA: no source of the CUDA folders, no header of the toolkit, no
function of its libraries asked for, none of these loaded.

Usage: without_cuda_test.py NM READELF BUILD LIBRARY PROGRAM
"""
import json
import pathlib
import re
import shlex
import subprocess
import sys

NM, READELF, BUILD, LIBRARY, PROGRAM = sys.argv[1:]
# Names of C functions, which are not mangled, of the runtime, the driver and the libraries.
FUNCTION = re.compile(r"^(__)?(cuda|cudnn|cublas|nccl|nvrtc|cu[A-Z])")
LIBRARIES = re.compile(r"^lib(cuda|cudart|cudnn|cublas|cublasLt|nccl|nvrtc)\b")
CUDA_FOLDER = re.compile(r"(^|/)(cuda|emulated)/")


def output(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def members_and_wants():
    """The object files of the library, and what each one does not define itself."""
    members, wants = [], {}
    for line in output(NM, "-A", "-u", LIBRARY).splitlines():
        where, _, name = line.rsplit(maxsplit=2)
        wants.setdefault(name, where)
    for line in output(NM, LIBRARY).splitlines():
        if line.endswith(".o:"):
            members.append(line[:-1])
    return members, wants


failures = []
members, wants = members_and_wants()
failures += [f"{where} asks for {name}" for name, where in wants.items() if FUNCTION.match(name)]

commands = json.loads((pathlib.Path(BUILD) / "compile_commands.json").read_text())
source = pathlib.Path(__file__).resolve().parent.parent
compiled = 0
for entry in commands:
    if not re.search(r"CMakeFiles/tessera(_simd_\w+|_normals_\w+)?\.dir/", entry["command"]):
        continue
    compiled += 1
    file = pathlib.Path(entry["file"]).resolve()
    inside = str(file.relative_to(source)) if file.is_relative_to(source) else ""
    if CUDA_FOLDER.search(inside) or file.suffix == ".cu":
        failures.append(f"{inside} is compiled")
    words = shlex.split(entry["command"])
    folders = [w.removeprefix("-I") for w in words if w.startswith("-I")]
    folders += [after for word, after in zip(words, words[1:]) if word == "-isystem"]
    failures += [f"{inside} is compiled with headers of {f}" for f in folders
                 if any((pathlib.Path(f) / h).exists() for h in ("cuda_runtime.h", "cudnn.h", "nccl.h", "cudnn_frontend.h"))]

loaded = re.findall(r"\(NEEDED\).*\[(.*)\]", output(READELF, "-d", PROGRAM))
failures += [f"{PROGRAM} loads {name}" for name in loaded if LIBRARIES.match(name)]

# What was looked at is there.
if compiled < 50 or len(members) < compiled or len(wants) < 100 or not any(n.startswith("libmpi") for n in loaded):
    failures.append(f"{compiled} commands, {len(members)} members, {len(wants)} names asked for, libraries {loaded}: "
                    "this is not the library")
for failure in failures[:20]:
    print(failure)
print(f"{len(failures)} traces of CUDA in {compiled} sources")
sys.exit(1 if failures else 0)
