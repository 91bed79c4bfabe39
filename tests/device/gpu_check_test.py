"""tools/gpu-check that is stopped from outside, or whose time ends in a step: it ends all that the step started, and the
report tells what was done and what was not. A step that fails is told of, and the others are done. The build is one of
scripts, of which one hangs or runs the real program on a device that is broken on purpose.

Usage: gpu_check_test.py SOURCE_FOLDER [BUILD_FOLDER_OF_THE_EMULATED_DEVICE]
"""
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time

check = [sys.executable, str(pathlib.Path(sys.argv[1]) / "tools/gpu-check"), "--preset", "cuda-emulated", "--quick"]
# As a launcher does it: each in a process group of its own. The second one does not end when it is told to, nor does what
# it has started in the background.
HANGS = """#!/bin/bash
set -m
(trap '' TERM; echo $BASHPID >> {pids}; while true; do sleep 1; done) &
(echo $BASHPID >> {pids}; exec sleep 600) &
trap '' TERM
echo $$ >> {pids}
wait
while true; do sleep 1; done
"""
LAUNCHER = """#!/bin/bash
shift 3
"$@"
"""
HANGING = "test_device_graph"  # the fourth step
NO_PLANS = "plans of cuDNN kept in a file"


def program(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)


def fake_build(folder):
    listed = subprocess.run([*check, "--list", "--build", str(folder)], capture_output=True, text=True).stdout.split()
    assert f"tests/{HANGING}" in listed, listed
    for name in listed:
        program(folder / name, "#!/bin/sh\nexit 0\n")
    program(folder / "tests" / HANGING, HANGS.format(pids=folder / "pids"))
    program(folder / "path/mpirun", LAUNCHER)


def runs(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def begun(folder):
    """The processes of the step that hangs, when all of them are there."""
    for _ in range(600):
        pids = (folder / "pids").read_text().split() if (folder / "pids").exists() else []
        if len(pids) == 3:
            return pids
        time.sleep(0.1)
    raise AssertionError("the step that hangs has not begun")


def stopped(folder, number, *options):
    """What gpu-check reports that is sent `number`, or runs out of time (0) in the step that hangs."""
    (folder / "pids").unlink(missing_ok=True)
    environment = dict(os.environ, PATH=f"{folder / 'path'}:{os.environ['PATH']}")
    process = subprocess.Popen([*check, "--build", str(folder), "--out", str(folder / "out"), *options], env=environment,
                               stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    pids = begun(folder)
    if number:
        process.send_signal(number)
    text = process.communicate(timeout=60)[0]
    left = [p for p in pids if runs(p)]
    for p in left:
        os.kill(int(p), signal.SIGKILL)
    assert not left, f"{len(left)} processes of the step still ran\n{text}"
    assert process.returncode == 1, (process.returncode, text)
    assert "Traceback" not in text, text
    report = json.loads((folder / "out/report.json").read_text())
    assert [s["status"] for s in report["steps"][:3]] == ["passed"] * 3, text
    later = {s["status"] for s in report["steps"][4:]}
    assert later == {"not run", "skipped"} and len(report["steps"]) > 15, text
    return report, (folder / "out/report.txt").read_text()


def by_signals(folder):
    for number, name in ((signal.SIGTERM, "SIGTERM"), (signal.SIGINT, "SIGINT")):
        report, text = stopped(folder, number)
        assert report["stopped"] == f"stopped by {name}", report["stopped"]
        assert report["steps"][3]["status"] == "stopped", report["steps"][3]
        assert all(s["reason"] == f"stopped by {name}" for s in report["steps"] if s["status"] == "not run"), report
        assert "3 passed, " in text and "1 stopped" in text and "MPI says" not in text, text


def by_time(folder):
    report, _ = stopped(folder, 0, "--minutes", "0.15")
    step = report["steps"][3]
    assert step["status"] == "not run" and "no time left, stopped after" in step["reason"], step
    assert "stopped" not in report, report


def while_it_builds(folder):
    """There are no steps yet."""
    program(folder / "path/cmake", HANGS.format(pids=folder / "pids"))
    (folder / "pids").unlink()
    environment = dict(os.environ, PATH=f"{folder / 'path'}:{os.environ['PATH']}")
    process = subprocess.Popen([*check, "--out", str(folder / "out")], env=environment, stdout=subprocess.PIPE, text=True)
    pids = begun(folder)
    process.terminate()
    text = process.communicate(timeout=60)[0]
    left = [p for p in pids if runs(p)]
    for p in left:
        os.kill(int(p), signal.SIGKILL)
    assert not left and process.returncode == 1, (left, process.returncode, text)
    report = json.loads((folder / "out/report.json").read_text())
    assert report["stopped"] == "stopped by SIGTERM" and report["steps"] == [], report


def check_failure(folder, names, said):
    """The steps have failed, which the status, both reports and the output tell, and the others have run. One other fails:
    scripts keep no plans."""
    names = [*names, NO_PLANS]
    environment = dict(os.environ, PATH=f"{folder / 'path'}:{os.environ['PATH']}")
    done = subprocess.run([*check, "--build", str(folder), "--out", str(folder / "out")], env=environment, timeout=200,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    report = json.loads((folder / "out/report.json").read_text())
    failed = [s for s in report["steps"] if s["status"] == "failed"]
    assert done.returncode == 1 and [s["name"] for s in failed] == names, (done.returncode, done.stdout)
    assert said in failed[0]["output"] and said in done.stdout, (failed, done.stdout)
    assert {s["status"] for s in report["steps"]} == {"passed", "failed", "skipped"}, done.stdout
    assert sum(s["status"] == "passed" for s in report["steps"]) > 15, done.stdout
    text = (folder / "out/report.txt").read_text()
    count = f" passed, {len(names)} failed"
    assert all(f"failed   {name}" in text for name in names) and count in text and count in done.stdout, text


def by_failure(folder, build):
    """A step whose status is wrong, and a real program on a device whose events say too early that they have
    happened."""
    program(folder / "tests/test_device_graph", "#!/bin/sh\necho not what it was\nexit 3\n")
    check_failure(folder, ["CUDA graphs"], "not what it was")
    program(folder / "tests/test_device_graph", "#!/bin/sh\nexit 0\n")
    if build is None:
        return
    program(folder / "tests/test_device_memory", f"#!/bin/sh\nexport TESSERA_EMULATED_MUTATION=events-done\n"
                                                 f"export TESSERA_EMULATED_SEED=1\nexec {build}/tests/test_device_memory\n")
    check_failure(folder, ["memory, copies, streams", "memory of copies and streams, commands tried only"], "FAILED")


with tempfile.TemporaryDirectory() as name:
    fake_build(pathlib.Path(name))
    by_signals(pathlib.Path(name))
    by_time(pathlib.Path(name))
    while_it_builds(pathlib.Path(name))
with tempfile.TemporaryDirectory() as name:
    fake_build(pathlib.Path(name))
    by_failure(pathlib.Path(name), pathlib.Path(sys.argv[2]).resolve() if sys.argv[2:] else None)
print("ok")
