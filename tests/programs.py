"""Runs a program as people do, and says what came out. Shared by the tests of the training programs."""
import concurrent.futures
import contextlib
import os
import pathlib
import shutil
import subprocess
import sys
import time

SECONDS = 60
AT_ONCE = 4


class Program:
    """A program under mpirun; counts what failed."""

    def __init__(self, mpirun, path):
        self.mpirun, self.path, self.failures = mpirun, path, 0
        self.pool, self.begun = None, []

    @contextlib.contextmanager
    def several(self):
        """What is `refused` inside is tried several at a time: jobs that end themselves mostly wait."""
        with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as self.pool:
            try:
                yield
            finally:
                begun, self.pool, self.begun = self.begun, None, []
            for one in begun:
                one.result()

    def run(self, ranks, arguments, environment=None, launcher=(), limit=SECONDS):
        start = time.monotonic()
        try:
            done = subprocess.run([self.mpirun, "-q", "-n", str(ranks), *launcher, self.path, *arguments],
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=limit,
                                  env={**os.environ, "TESSERA_TTY": "0", **(environment or {})})
            return done.returncode, done.stdout, time.monotonic() - start
        except subprocess.TimeoutExpired as stuck:
            return "none in time", str(stuck.stdout), limit

    def report(self, name, good, output=""):
        self.failures += not good
        print(f"{'ok' if good else 'FAILED'}: {name}")
        if not good:
            print(output)

    def refused(self, name, ranks, arguments, *texts, **how):
        """One line that has all the texts, printed once, exit code 1. `how`: as for `run`."""
        if self.pool:
            self.begun.append(self.pool.submit(self.refuse, name, ranks, arguments, texts, how))
        else:
            self.refuse(name, ranks, arguments, texts, how)

    def refuse(self, name, ranks, arguments, texts, how):
        code, output, seconds = self.run(ranks, arguments, **how)
        lines = output.splitlines()
        good = code == 1 and len(lines) == 1 and all(t in lines[0] for t in texts)
        self.report(f"{name} on {ranks} ranks: {lines[0] if lines else ''} ({seconds:.1f} s)", good,
                    f"exit code {code}\n{output}")

    def draws(self, name, script, picture, settings):
        """gnuplot makes a picture of what a run has written."""
        if not shutil.which("gnuplot"):
            self.report("gnuplot is missing", False)
            return
        done = subprocess.run(["gnuplot", "-e", f"{settings} out='{picture}'", str(script)], stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True)
        good = done.returncode == 0 and picture.exists() and picture.read_bytes().startswith(b"\x89PNG")
        self.report(name, good and picture.stat().st_size > 5000, done.stdout)


def data_file(name):
    """A file of Debian's package ferret-datasets."""
    for place in ("/usr/share/ferret-vis/data", "/usr/share/ferret/data", "/usr/share/ferret-datasets"):
        for found in pathlib.Path(place).rglob(name) if pathlib.Path(place).exists() else []:
            return found
    listed = subprocess.run(["dpkg", "-L", "ferret-datasets"], stdout=subprocess.PIPE, text=True).stdout
    return pathlib.Path(next(l for l in listed.splitlines() if l.endswith(name)))


def write(path, text):
    path.write_text(text)
    return path


def more_on_rank_1(folder, options):
    """A launcher that gives rank 1 options that the others do not have."""
    launcher = write(folder / "more.sh", f'#!/bin/sh\nmore=""\nif [ "$OMPI_COMM_WORLD_RANK" = 1 ]; then more="{options}"; '
                                         'fi\nexec "$@" $more\n')
    launcher.chmod(0o755)
    return (str(launcher),)


def other_data_on_rank_1(folder, good, bad):
    """A launcher that gives rank 1 another --data than the others."""
    launcher = write(folder / "launcher.sh",
                     f'#!/bin/sh\ndata={good}\nif [ "$OMPI_COMM_WORLD_RANK" = 1 ]; then data={bad}; fi\n'
                     'exec "$@" --data "$data"\n')
    launcher.chmod(0o755)
    return (str(launcher),)
