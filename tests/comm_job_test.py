"""Runs comm_job_program under mpirun: exit codes, messages printed once, no banners, no hang."""
import concurrent.futures
import sys

sys.dont_write_bytecode = True
from programs import AT_ONCE, Program  # noqa: E402

program = Program(*sys.argv[1:3])
SECONDS = 30  # far below the library's deadline of 300

# mode, ranks, exit code, text that must appear exactly once (None: nothing may appear)
CASES = [
    ("run", 1, 0, "sum 1"),
    ("run", 3, 0, "sum 3"),
    ("alone", 1, 1, "the last rank cannot read a.nc"),
    ("alone", 3, 1, "the last rank cannot read a.nc"),
    ("together", 3, 1, "no rank can read a.nc"),
    ("deadline", 2, 1, "barrier: waited 0.5 s in a group of 2 ranks (this is rank 0) for messages from rank 1"),
    ("throw", 3, 1, "reader: rank 1 alone cannot go on"),
    ("foreign", 1, 1, "run_program: the program threw int, which is no std::exception"),
    ("foreign", 3, 1, "run_program: the program threw int, which is no std::exception"),
    ("foreign together", 3, 1, "run_program: the program threw std::"),
    ("foreign, deadline", 2, 1, "the last rank came first"),
    ("foreign, deadline", 4, 1, "the last rank came first"),
    ("foreign, deadline", 2, 1, "barrier: waited 2 s in a group of 2 ranks (this is rank 0) for messages from rank 1",
     {"TESSERA_SHARED_MEMORY": "0"}),
    ("alone", 3, 1, "the last rank cannot read a.nc", {"TESSERA_SHARED_MEMORY": "0"}),
    ("together", 3, 1, "no rank can read a.nc", {"TESSERA_SHARED_MEMORY": "0"}),
    ("foreign", 3, 1, "run_program: the program threw int, which is no std::exception", {"TESSERA_SHARED_MEMORY": "0"}),
    ("foreign together", 3, 1, "run_program: the program threw std::", {"TESSERA_SHARED_MEMORY": "0"}),
    ("foreign, two lines", 1, 1, r"one\ntwo\x1b[2J"),
    ("foreign, two lines", 3, 1, r"one\ntwo\x1b[2J"),
    ("foreign, no memory", 1, 1, "run_program: out of memory"),
    ("foreign, no memory", 3, 1, "run_program: out of memory"),
    ("foreign without words", 1, 1, "run_program: the program threw std::runtime_error without a message"),
    ("foreign, unread", 2, 1, "rank 1's disk is on fire"),
    ("foreign, unread", 3, 1, "rank 1's disk is on fire"),
    ("caught", 2, 1, "rank 1 of 2 has ended its run and will not take part"),
    ("status 0, early", 2, 1, "barrier: rank 1 of 2 has ended its run and will not take part"),
    ("status 0, early", 3, 1, "barrier: rank 2 of 3 has ended its run and will not take part",
     {"TESSERA_SHARED_MEMORY": "0"}),
    ("foreign, many works", 3, 1, "rank 1 alone"),
    ("status 0, works dropped", 3, 1, "all_reduce: rank 2 of 3 has ended its run and will not take part"),
    ("status 0, busy, twice", 2, 0, None),
    ("status 0, again", 1, 1, "mpi: MPI was ended in this process before and cannot be started again"),
    ("status 0, again", 3, 1, "mpi: MPI was ended in this process before and cannot be started again"),
    ("status 0, recovered", 2, 0, None),
    ("foreign, after a lost one", 2, 1, "my disk is on fire; before that, all_reduce: rank 1 of 2 has ended its run"),
    ("status 0, late", 3, 0, None),
    ("status 0, late", 3, 0, None, {"TESSERA_SHARED_MEMORY": "0"}),
    ("status", 1, 3, None),
    ("status", 3, 1, "run_program: rank 2 of 3 returned status 3, and not all others returned within 4 s"),
    ("status together", 3, 3, None),
    ("status, nobody waits", 3, 3, None),
]

# Wrong settings in the environment: variable, value, text of the one line.
ENVIRONMENT = [
    ("TESSERA_DEADLINE", "abc", "communicator: TESSERA_DEADLINE is 'abc', but must be a positive number of seconds"),
    ("TESSERA_CUDA_COMM", "foo", "communicator: TESSERA_CUDA_COMM is 'foo', but must be nccl or mpi"),
    ("TESSERA_SHARED_MEMORY", "2", 'TESSERA_SHARED_MEMORY: "2" was given, allowed are 0 and 1'),
    ("TESSERA_OVERLAP", "yes", 'TESSERA_OVERLAP: "yes" was given, allowed are 0 and 1'),
    ("TESSERA_CHECK_CALLS", "y\nes", 'TESSERA_CHECK_CALLS: "y\\nes" was given, allowed are 0 and 1'),
    ("TESSERA_ALLOCATOR", "foo", 'TESSERA_ALLOCATOR: "foo" was given, allowed is system'),
    ("TESSERA_LOG", "foo", 'TESSERA_LOG: "foo" was given, allowed are error, warn, info, debug'),
    ("TESSERA_LOG_RANKS", "0", 'TESSERA_LOG_RANKS: "0" was given, allowed is all'),
]
CASES += [("status together", 3, 1, text, {name: value}) for name, value, text in ENVIRONMENT]
CASES += [("status together", 1, 1, text, {name: value}) for name, value, text in ENVIRONMENT[:1]]
CASES += [("status together", 1, 3, None, {"TESSERA_LOG": "warn", "TESSERA_LOG_RANKS": "", "TESSERA_ALLOCATOR": "system"})]
# Set for rank 1 alone.
CASES += [("status together", 3, 1, "communicator: TESSERA_CHECK_CALLS must be the same on all ranks, but is 0 on ranks 0, 2; 1 on "
           "rank 1", {}, "TESSERA_CHECK_CALLS=1")]
CASES += [("run", 3, 0, "sum 3", {}, setting) for setting in
          ("TESSERA_CHECK_CALLS=0", "TESSERA_CONV_CHOICE=measure", "TESSERA_LOG=error", "TESSERA_ALLOCATOR=system", "TESSERA_OVERLAP=0",
           "TESSERA_SHARED_MEMORY=0", "TESSERA_DEADLINE=250", "TESSERA_CUDA_COMM=mpi", "TESSERA_CUDA_AWARE_MPI=0")]


def run(case):
    """Whether it went as it should, and what to print of it."""
    mode, ranks, code, text, *more = case
    environment = more[0] if more else {}
    launcher = ()
    if len(more) > 1:
        launcher = ("sh", "-c", f'if [ "$OMPI_COMM_WORLD_RANK" = 1 ]; then export {more[1]}; fi; exec "$0" "$@"')
    exit_code, output, seconds = program.run(ranks, [mode], environment, launcher, limit=SECONDS)
    said = output == "" if text is None else output.count(text) == 1 and len(output.splitlines()) == 1
    good = exit_code == code and said
    report = f"{'ok' if good else 'FAILED'}: {mode} {environment or ''} {' '.join(more[1:])} on {ranks} ranks, {seconds:.1f} s, exit code {exit_code}"
    return good, report if good else f"{report}\n{output}"


def main():
    failed = 0
    with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
        for good, report in pool.map(run, CASES):
            failed += not good
            print(report)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
