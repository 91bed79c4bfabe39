"""What tools/gpu-check has run, step by step, and what it tells of it. A step's processes end with it, whatever ends it."""
import json
import os
import pathlib
import platform
import shutil
import signal
import subprocess
import tempfile
import time

from carried import Stop

ROOT = pathlib.Path(__file__).resolve().parent.parent


def call(*command, **options):
    """A program that all steps need."""
    try:
        process = subprocess.Popen(command, cwd=ROOT, start_new_session=True, **options)
    except OSError as error:
        raise Stop(f"{command[0]} is missing ({error.strerror})") from error
    try:
        output = process.communicate()[0]
    except Stop:
        end_session(process)
        raise
    return subprocess.CompletedProcess(command, process.returncode, output)


def mpi_environment():
    """What tools/mpienv exports, and the device for tests."""
    done = call("bash", "-c", 'source "$0" && env -0', ROOT / "tools/mpienv", stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    environment = dict(item.split("=", 1) for item in done.stdout.decode().split("\0") if "=" in item)
    return dict(environment, TESSERA_TEST_DEVICE="cuda", OMP_NUM_THREADS="1")


def of_session(leader):
    """The processes of a session that still run. A launcher gives its ranks process groups of their own."""
    for folder in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            fields = (folder / "stat").read_text(errors="replace").rpartition(")")[2].split()
        except OSError:
            continue  # it has ended
        if fields[0] not in "ZX" and int(fields[3]) == leader:
            yield int(folder.name)


def signal_all(processes, number):
    for process in processes:
        try:
            os.kill(process, number)
        except ProcessLookupError:
            pass


def end_session(process, grace=5):
    """Ends the process and all that it started, so that they leave the device to the next step; returns what it wrote and
    nobody has read. A launcher that is told to end takes along its ranks; who has not ended after the grace is killed."""
    signal_all(of_session(process.pid), signal.SIGTERM)
    end = time.monotonic() + grace
    while any(of_session(process.pid)) and time.monotonic() < end:
        time.sleep(0.05)
    while left := list(of_session(process.pid)):
        signal_all(left, signal.SIGKILL)
        time.sleep(0.05)
    try:
        return process.communicate(timeout=grace)[0]
    except subprocess.TimeoutExpired as late:  # somebody else holds its output
        return (late.output or b"").decode(errors="replace")


def finish(process, seconds, stopped):
    """Whether the process ended by itself, and what it wrote. If not, nothing that it started runs any more."""
    end = time.monotonic() + seconds
    while not stopped() and (left := end - time.monotonic()) > 0:
        try:
            return True, process.communicate(timeout=min(left, 0.25))[0]
        except subprocess.TimeoutExpired:
            pass  # communicate may be called again, and loses nothing
    return False, end_session(process)


def missing_program(command):
    """The first of a command's programs that is not here, or None."""
    programs = [command[0], *(c for c in command if c == "mpirun"), *(command[4:5] if command[0] == "mpirun" else [])]
    return next((p for p in programs if not shutil.which(p)), None)


def on_ranks(ranks, *command):
    return ["mpirun", "-q", "-n", str(ranks), *map(str, command)]


class Report:
    def __init__(self, options):
        self.minutes = options.minutes
        self.slowness = 10 if options.emulated else 1  # of stand-ins
        self.steps = []
        self.figures = []
        self.figures_note = ""
        self.missing = {}  # programs, in the order in which they were looked for
        self.carried = {}  # variables that a carried build needs
        self.raises = True  # until the steps begin: they look whether they shall stop
        self.facts = {"preset": options.preset, "host": platform.node(), "when": time.strftime("%Y-%m-%d %H:%M:%S")}

    def listen(self):
        """To those who want no more of it, a timeout around it for instance."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self.stop)

    def stop(self, number, frame):
        """A signal has come. What is to be ended, and how, the steps know; elsewhere an exception finds it."""
        if self.stopped():
            return
        self.facts["stopped"] = f"stopped by {signal.Signals(number).name}"
        if self.raises:
            self.raises = False
            raise Stop(self.facts["stopped"])

    def stopped(self):
        return self.facts.get("stopped")

    def begin(self):
        """From here on the minutes count."""
        self.end = time.monotonic() + 60 * self.minutes
        self.environment = dict(mpi_environment(), **self.carried)
        self.raises = False

    def add(self, name, status, line="", **more):
        self.steps.append({"name": name, "status": status, **more})
        print(f"{status:8} {name}{line}", flush=True)

    def skip(self, name, reason):
        """There is nothing here for the step, which is no fault."""
        self.add(name, "skipped", f": {reason}", reason=reason)

    def leave(self, name, reason, **more):
        """The step should have run, and could not."""
        self.add(name, "not run", f": {reason}", reason=reason, **more)

    def run(self, name, command, limit=60, never=None, **environment):
        """A step, which fails if its program does, or says what it never should."""
        missing = missing_program(command)
        if missing:
            self.missing.setdefault(missing)
            return self.leave(name, f"{missing} is missing")
        if self.stopped():
            return self.leave(name, self.stopped())
        rest = self.end - time.monotonic()
        left = min(limit * self.slowness, rest)
        if left < 5:
            return self.leave(name, "no time left")
        start = time.monotonic()
        process = subprocess.Popen(command, env=dict(self.environment, **environment), stdout=subprocess.PIPE,
                                   stderr=subprocess.STDOUT, text=True, errors="replace", cwd=ROOT, start_new_session=True)
        ended, text = finish(process, left, self.stopped)
        seconds = round(time.monotonic() - start, 1)
        wrong = ended and process.returncode == 0 and never is not None and never in text
        if wrong:
            text += f"\nthe program passed, but said: {never}"
        told = {"seconds": seconds, "command": " ".join(command), "output": text[-4000:]}
        if ended and process.returncode == 0 and not wrong:
            return self.add(name, "passed", f" ({seconds} s)", **told)
        if not ended and self.stopped():
            return self.add(name, "stopped", f" ({seconds} s)", reason=self.stopped(), **told)
        if not ended and left == rest:
            return self.leave(name, f"no time left, stopped after {left:.0f} s", **told)
        if not ended:
            text += f"\nstopped after {left:.0f} s"
            told["output"] = text[-4000:]
        self.add(name, "failed", f" ({seconds} s)", **told)
        print("    " + "\n    ".join(text.strip().splitlines()[-12:]), flush=True)

    def bench(self, program, *arguments):
        """Figures of the best of several repeats, in turns with what they are compared with."""
        with tempfile.TemporaryDirectory() as name:
            path = pathlib.Path(name) / "bench.jsonl"
            self.run("bench", on_ranks(1, program, "--device", "cuda", "--repeats", "5", "--json", path, *arguments), limit=90)
            if path.exists():
                # A bench that was stopped may have left half a line.
                whole = [line for line in path.read_text().splitlines(keepends=True) if line.endswith("\n")]
                self.figures += [json.loads(line) for line in whole]

    def summary(self):
        """What there is to know first: how many steps did what, and which were not run."""
        count = {s: sum(step["status"] == s for step in self.steps) for s in ("passed", "failed", "skipped", "stopped", "not run")}
        lines = [", ".join(f"{n} {status}" for status, n in count.items() if n) or "nothing was run"]
        if self.missing:
            lines.append(f"missing: {', '.join(self.missing)}")
        if count["not run"]:
            lines.append("NOT RUN: " + "; ".join(s["name"] for s in self.steps if s["status"] == "not run"))
        return lines

    def success(self):
        return bool(self.steps) and all(s["status"] in ("passed", "skipped") for s in self.steps)

    def write(self, folder):
        folder = pathlib.Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "report.json").write_text(json.dumps(
            {**self.facts, "missing": list(self.missing), "steps": self.steps, "figures": self.figures}, indent=1))
        lines = [f"{k}: {v}" for k, v in self.facts.items()] + self.summary()
        for s in self.steps:
            lines.append(f"{s['status']:8} {s['name']} {s.get('seconds', '')} {s.get('reason', '')}".rstrip())
        if self.figures:
            lines += ["", self.figures_note] if self.figures_note else [""]
        for f in self.figures:
            rate = f", {f['GF/s'] / 1e3:.1f} TF/s" if "GF/s" in f else ""
            if "over_library" in f and f["variant"] == f["ratio_to"]:
                rate += f", the best step {f['over_library']:.2f} times its library calls"
            lines.append(f"{f['group']:15} {f['case']:40} {f['shape']:22} {f['variant']:24} {1e6 * f['best_s']:10.1f} us"
                         f"  {f['ratio']:.3f} of {f['ratio_to']}{rate}")
        (folder / "report.txt").write_text("\n".join(lines) + "\n")
        print("\n".join([*self.summary(), f"report: {folder}/report.json, {folder}/report.txt"]))
