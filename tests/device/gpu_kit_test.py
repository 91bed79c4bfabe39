"""What tools/gpu-kit packs of a build is all that tools/gpu-check needs: no other library than glibc's and what the machine
has newer is taken from elsewhere.

Usage: gpu_kit_test.py SOURCE_FOLDER BUILD_FOLDER (of the preset cuda-emulated)
"""
import os
import pathlib
import re
import subprocess
import sys
import tempfile

tools, build = pathlib.Path(sys.argv[1]) / "tools", sys.argv[2]
OF_THE_MACHINE = re.compile(r"(ld-linux\S*|lib(c|m|mvec|dl|rt|pthread|resolv|util|stdc\+\+|gcc_s|gomp|z|udev))\.so")


def run(*command, **environment):
    done = subprocess.run(list(map(str, command)), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          env=dict(os.environ, **environment))
    print(done.stdout, flush=True)
    assert done.returncode == 0, command


def loaded(folder):
    """Program -> libraries, of the processes whose programs were carried, as the linker noted them."""
    for note in folder.iterdir():
        text = note.read_text(errors="replace")
        program = re.search(r"initialize program: (\S+)", text)
        # One that was found by PATH goes by its name alone.
        if program and (program[1] == "mpirun" or "/gpu-check-" in program[1]):
            yield program[1], set(re.findall(r"calling init: (\S+)", text))


with tempfile.TemporaryDirectory() as name:
    folder = pathlib.Path(name)
    run(sys.executable, tools / "gpu-kit", "--preset", "cuda-emulated", "--build", build, "--level", 0, "--out", folder / "kit")
    (folder / "notes").mkdir()
    run(sys.executable, tools / "gpu-check", "--preset", "cuda-emulated", "--kit", folder / "kit", "--quick",
        "--out", folder / "out", LD_DEBUG="libs", LD_DEBUG_OUTPUT=str(folder / "notes/of"))
    processes = list(loaded(folder / "notes"))
    programs = {pathlib.Path(program).name for program, _ in processes}
    assert {"mpirun", "test_device_memory", "tessera-verify", "tessera-bench"} <= programs, programs
    for program, paths in processes:
        strangers = [p for p in paths if "/gpu-check-" not in p and not OF_THE_MACHINE.match(pathlib.Path(p).name)]
        assert not strangers, (program, strangers)
        assert any("/gpu-check-" in p and "libopen-rte" in p for p in paths), (program, paths)
    print(f"ok: {len(processes)} processes loaded what was carried")
