"""--comm says how messages of device memory go, in all four programs, and counts more than TESSERA_CUDA_COMM.

Usage: comm_option_test.py MPIRUN BIN_FOLDER CASES_FOLDER CONFIG_FOLDER

Two ranks share the one device of the host. Whoever asks for NCCL then is told that messages go another way; who asks
for MPI is told nothing.
"""
import os
import pathlib
import subprocess
import sys
import tempfile

mpirun, programs, cases, configs = sys.argv[1], *map(pathlib.Path, sys.argv[2:5])
environment = dict(os.environ, TESSERA_EMULATED_DEVICES="1")
MAP = ["--steps", "1", "--mesh", "lat=2"]


def run(program, arguments, **extra):
    done = subprocess.run([mpirun, "-q", "-n", "2", str(programs / program), *map(str, arguments)], capture_output=True,
                          text=True, env=dict(environment, **extra))
    return done.returncode, done.stdout + done.stderr


def check(program, arguments):
    for comm, other in (("nccl", "mpi"), ("mpi", "nccl")):
        code, text = run(program, [*arguments, "--device", "cuda", "--comm", comm], TESSERA_CUDA_COMM=other)
        assert code == 0, (program, comm, text)
        assert ("share device" in text) == (comm == "nccl"), (program, comm, text)
        print(f"ok: {program} --comm {comm}")
    code, text = run(program, [*arguments, "--comm", "mpi"])
    assert code != 0 and "device" in text and "cpu" in text, (program, code, text)
    print(f"ok: {program} --comm on the CPU is refused")


with tempfile.TemporaryDirectory() as folder:
    check("tessera-verify", ["--trials", "1", "--mesh", "2", "--seed", "3", *sorted(cases.glob("conv2d*.safetensors"))[:2]])
    check("tessera-bench", ["--quick", "--only", "conv_step"])
    check("tessera-winds", ["--config", configs / "winds/winds.toml", *MAP, "--depth", "1", "--width", "16", "--heads", "2",
                            "--batch", "1", "--held_out", "1", "--month", "131", "--out", folder])
    check("tessera-relief", ["--config", configs / "relief/relief.toml", *MAP, "--reduce", "60", "--coarsen", "4",
                             "--widths", "4,4", "--groups", "2", "--out", folder])
