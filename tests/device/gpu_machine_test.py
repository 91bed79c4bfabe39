"""tools/gpu-check on machines that have this and that: devices of which some are hidden, a compute-sanitizer somewhere or
nowhere, a folder whose name has a space. nvidia-smi, the driver, mpirun and the build's programs are made up.

Usage: gpu_machine_test.py SOURCE_FOLDER
"""
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True
source = pathlib.Path(sys.argv[1]).resolve()
sys.path.insert(0, str(source / "tools"))
import machine  # noqa: E402

# Answers as CUDA's does: 100 is that there is no device.
DRIVER = """#include <stdlib.h>
static int count(void) { return atoi(getenv("MADE_UP_DEVICES")); }
int cuInit(unsigned flags) { return count() < 0 ? 999 : count() == 0 ? 100 : 0; }
int cuDeviceGetCount(int* n) { *n = count(); return 0; }
"""
LAUNCHER = '#!/bin/bash\nshift 3\n"$@"\n'
# What mpienv exports is there.
PROGRAM = '#!/bin/sh\n[ "$OMPI_MCA_rmaps_base_oversubscribe" = 1 ] || exit 1\n'
NO_PLANS = "plans of cuDNN kept in a file"  # scripts keep none
NCCL = ["NCCL between 2 devices", "batch norms over NCCL, 2 ranks", "conformance over NCCL, 2 ranks"]
SANITIZED = ["memory of copies and streams", "memory of operations", "races of threads in operations",
             "barriers in operations", "memory that nobody wrote, in operations"]


def program(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)


class Machine:
    """Four GPUs, and a build."""

    def __init__(self, folder, root=source):
        self.folder, self.check = folder, [sys.executable, str(root / "tools/gpu-check"), "--quick"]
        program(folder / "path/nvidia-smi", "#!/bin/sh\nfor i in 1 2 3 4; do echo made up, 1, 2 MiB; done\n")
        program(folder / "path/mpirun", LAUNCHER)
        (folder / "driver.c").write_text(DRIVER)
        subprocess.run(["cc", "-shared", "-fPIC", "-o", folder / "libcuda.so.1", folder / "driver.c"], check=True)
        listed = subprocess.run([*self.check, "--list", "--build", str(folder)], capture_output=True, text=True).stdout
        for name in listed.split():
            program(folder / name, PROGRAM)

    def run(self, *options, devices=4, **more):
        """The status, the report, and what was said."""
        environment = dict(os.environ, LD_LIBRARY_PATH=str(self.folder), MADE_UP_DEVICES=str(devices), **more)
        environment["PATH"] = f"{self.folder / 'path'}:{os.environ['PATH']}"
        done = subprocess.run([*self.check, "--build", str(self.folder), "--out", str(self.folder / "out"), *options],
                              env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=120)
        assert "\nTraceback" not in done.stdout, done.stdout  # that of a step is farther right
        report = json.loads((self.folder / "out/report.json").read_text())
        return done.returncode, report, done.stdout


def steps(report, status):
    return [s["name"] for s in report["steps"] if s["status"] == status]


def step(report, name):
    return next(s for s in report["steps"] if s["name"] == name)


def devices_are_those_that_cuda_shows(here):
    _, report, text = here.run()
    assert set(NCCL) <= set(steps(report, "passed")) and "devices" not in report, text
    _, report, text = here.run(devices=1, CUDA_VISIBLE_DEVICES="2")
    assert "NCCL between devices" in steps(report, "skipped") and not set(NCCL) & set(steps(report, "passed")), text
    assert report["devices"] == "1 where nvidia-smi shows 4 (CUDA_VISIBLE_DEVICES=2)", report["devices"]
    for devices, said in ((0, "CUDA shows none of the GPUs"), (-1, "it answers with error 999")):
        status, report, text = here.run(devices=devices, CUDA_VISIBLE_DEVICES="")
        assert status == 1 and said in report["stopped"] and report["steps"] == [], text
    assert "CUDA_VISIBLE_DEVICES=" in here.run(devices=0, CUDA_VISIBLE_DEVICES="")[2]


def nccl_it_is_or_it_fails(here):
    """The variable is given, and who says that messages went by MPI after all has failed."""
    text = (source / "comm/cuda/device_way.cpp").read_text()
    said = "ranks 0 and 1 of a group share device 0 of here, which NCCL refuses: messages go by MPI"
    assert said.partition("which")[2] in text, "the library says it in other words"
    for line, failed in (("asked for $TESSERA_CUDA_COMM", []), (said, NCCL[:1])):
        program(here.folder / "tests/test_device_nccl", f"{PROGRAM}[ $TESSERA_CUDA_COMM = mpi ] || echo {line}\n")
        _, report, text = here.run(TESSERA_CUDA_COMM="mpi")
        assert steps(report, "failed") == [*failed, NO_PLANS], text
        expected = "the program passed, but said: which NCCL refuses" if failed else "asked for nccl"
        assert expected in step(report, NCCL[0])["output"], report
    program(here.folder / "tests/test_device_nccl", PROGRAM)


def sanitizer_is_looked_for(here, folder):
    """In a toolkit that the environment names; the stand-in for it says what it was given."""
    toolkit = folder / "toolkit"
    program(toolkit / "bin/compute-sanitizer",
            f'#!/bin/sh\necho given: "$@"\nexec {source}/emulated/compute-sanitizer "$@"\n')
    _, report, text = here.run(CUDA_HOME=str(toolkit))
    assert set(SANITIZED) <= set(steps(report, "passed")), text
    if not shutil.which("compute-sanitizer"):
        for name in SANITIZED:
            command = step(report, name)["output"].splitlines()[0]
            assert command.startswith("given: --error-exitcode 9 --tool "), command
            assert ("--report-api-errors no" in command) == (" memcheck " in command), command
            assert ("kernel_substring=tessera" in command) == (name != SANITIZED[0]), command
    os.environ["CUDA_PATH"] = str(toolkit)
    assert machine.sanitizer(folder) == (shutil.which("compute-sanitizer") or str(toolkit / "bin/compute-sanitizer"))
    del os.environ["CUDA_PATH"]
    (folder / "cuda-99/bin").mkdir(parents=True)
    shutil.copy(toolkit / "bin/compute-sanitizer", folder / "cuda-99/bin")
    package = folder / "packages/nvidia/cu99/compute-sanitizer"
    package.mkdir(parents=True)
    shutil.copy(toolkit / "bin/compute-sanitizer", package)
    if not machine.sanitizer(folder / "nothing"):
        assert machine.sanitizer(folder) == str(folder / "cuda-99/bin/compute-sanitizer")
        sys.path.append(str(folder / "packages"))
        assert machine.sanitizer(folder / "nothing") == str(package / "compute-sanitizer")
        sys.path.pop()


def without_sanitizer_steps_are_not_run(here):
    if machine.sanitizer():
        return print("there is a compute-sanitizer here: that none is missed was not tried")
    status, report, text = here.run()
    assert status == 1 and steps(report, "not run") == SANITIZED and report["missing"] == ["compute-sanitizer"], text
    assert all(s["reason"] == "compute-sanitizer is missing" for s in report["steps"] if s["status"] == "not run"), text


def stand_in_refuses(folder):
    """What the real one does not know, and what it must not be given."""
    program(folder / "ran", "#!/bin/sh\necho ran\n")
    ours = "--kernel-name kernel_substring=tessera"
    stand_in = [str(source / "emulated/compute-sanitizer"), "--error-exitcode", "9", "--tool"]
    for options, said in ((f"memcheck --report-api-errors no {ours}", "ran"), (f"racecheck {ours}", "ran"),
                          ("memcheck --report-api-errors never", "unknown value never"),
                          ("synccheck --kernel-name substring=tessera", "unknown filter"),
                          ("racecheck --kernels tessera", "unknown option --kernels"), (f"leakcheck {ours}", "unknown tool"),
                          ("memcheck", "unless --report-api-errors no"), ("initcheck", "looks into libraries' kernels")):
        done = subprocess.run([*stand_in, *options.split(), str(folder / "ran")], capture_output=True, text=True,
                              env=dict(os.environ, TESSERA_ALLOCATOR="system"))
        assert said in done.stdout + done.stderr and (done.returncode == 0) == (said == "ran"), (options, done)


def a_folder_with_a_space(folder):
    root = folder / "a folder"
    shutil.copytree(source / "tools", root / "tools")
    shutil.copytree(source / "emulated", root / "emulated", ignore=lambda _, names: set(names) - {"compute-sanitizer"})
    for name in ("conv2d_same", "linear_tokens"):
        program(root / f"tests/cases/{name}.safetensors", "")
    build = root / "build"
    _, report, text = Machine(build, root).run()
    assert len(steps(report, "passed")) > 10 and steps(report, "failed") == [NO_PLANS], text


def options_that_exclude_each_other(here):
    for options, said in ((["--kit", "x", "--build", "y"], "--build has no meaning"),
                          (["--kit", "x", "--list"], "--list has no meaning")):
        done = subprocess.run([*here.check, *options], capture_output=True, text=True)
        assert done.returncode == 1 and said in done.stderr and len(done.stderr.splitlines()) == 1, done


with tempfile.TemporaryDirectory() as name:
    machine_here = Machine(pathlib.Path(name) / "machine")
    devices_are_those_that_cuda_shows(machine_here)
    nccl_it_is_or_it_fails(machine_here)
    sanitizer_is_looked_for(machine_here, pathlib.Path(name))
    without_sanitizer_steps_are_not_run(machine_here)
    stand_in_refuses(pathlib.Path(name))
    a_folder_with_a_space(pathlib.Path(name))
    options_that_exclude_each_other(machine_here)
print("ok")
