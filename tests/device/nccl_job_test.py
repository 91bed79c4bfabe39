#!/usr/bin/env python3
"""Jobs whose ranks disagree end with a message; ranks find their devices: nccl_job_test.py MPIEXEC PROGRAM"""
import os
import re
import subprocess
import sys

mpiexec, program = sys.argv[1], sys.argv[2]
failures = []


def run(ranks, mode, **variables):
    environment = dict(os.environ, **variables)
    done = subprocess.run([mpiexec, "-q", "-n", str(ranks), program, mode], env=environment, timeout=200, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    return done.returncode, done.stdout


def expect(what, condition, output):
    print(f"{'ok' if condition else 'FAILED'}: {what}")
    if not condition:
        failures.append(what)
        print(output)


def ends_with(mode, message, **variables):
    code, output = run(2, mode, **variables)
    expect(f"{mode} {variables} ends the job and says: {message}", code != 0 and re.search(message, output), output)


# The stand-in itself finds out.
ends_with("mismatch", r"receives message 0 of 20 bytes from rank 0, which sends message 0 of 16 bytes")
ends_with("silence", r"has waited 2 s .*nothing comes from rank 1", TESSERA_EMULATED_PATIENCE="2")
ends_with("surplus", r"rank 1 has sent what it never received|what it sends is not taken", TESSERA_EMULATED_PATIENCE="2")
ends_with("crossed", r"calls of several communicators differ in their order")
ends_with("one device", r"ranks \d and \d of 2 come with one device, 0", TESSERA_EMULATED_DEVICES="1")
# The library does, before that.
ends_with("silence", r"exchange with rank 1 .*the host has waited 2 s for the device", TESSERA_DEADLINE="2")
ends_with("tell", r"TESSERA_CUDA_COMM is 'shout', but must be nccl or mpi", TESSERA_CUDA_COMM="shout")


def told(ranks, **variables):
    code, output = run(ranks, "tell", **variables)
    lines = sorted(re.findall(r"rank (\d) device (\d) sum (\d) way (\w+)", output))
    expect(f"{ranks} ranks {variables}: all finish", code == 0 and len(lines) == ranks, output)
    expect("the sum is right", all(line[2] == str(ranks) for line in lines), output)
    return lines, output


lines, output = told(3)
expect("each has a device of its own", [line[3] for line in lines] == ["nccl"] * 3, output)
lines, output = told(3, TESSERA_EMULATED_DEVICES="4")
expect("one device per rank of the host", [line[1] for line in lines] == ["0", "1", "2"], output)
expect("NCCL between them", [line[3] for line in lines] == ["nccl"] * 3, output)
lines, output = told(3, TESSERA_EMULATED_DEVICES="2")
expect("more ranks than devices", [line[1] for line in lines] == ["0", "1", "0"], output)
expect("then by way of the host", [line[3] for line in lines] == ["host"] * 3, output)
expect("and one line says so", output.count("share device") == 1, output)
lines, output = told(2, TESSERA_CUDA_COMM="mpi")
expect("by way of the host when asked", [line[3] for line in lines] == ["host"] * 2, output)
expect("without a word", "share device" not in output, output)
lines, output = told(2, TESSERA_CUDA_COMM="mpi", TESSERA_CUDA_AWARE_MPI="0", TESSERA_EMULATED_CUDA_AWARE_MPI="1")
expect("and when MPI is not to be given addresses", [line[3] for line in lines] == ["host"] * 2, output)
for wish in ("auto", "1"):
    lines, output = told(3, TESSERA_CUDA_COMM="mpi", TESSERA_CUDA_AWARE_MPI=wish, TESSERA_EMULATED_CUDA_AWARE_MPI="1")
    expect("from the device where MPI takes its addresses", [line[3] for line in lines] == ["device"] * 3, output)
lines, output = told(3, TESSERA_EMULATED_DEVICES="2", TESSERA_EMULATED_CUDA_AWARE_MPI="1")
expect("also where ranks share a device", [line[3] for line in lines] == ["device"] * 3, output)
# An MPI that does not take addresses of a device follows them, and crashes.
code, output = run(2, "tell", TESSERA_CUDA_COMM="mpi", TESSERA_CUDA_AWARE_MPI="1")
expect("addresses of a device crash another MPI", code != 0 and "Segmentation fault" in output, output)
ends_with("changed", "4194304 bytes changed while they were sent", TESSERA_EMULATED_CUDA_AWARE_MPI="1")
ends_with("tell", r"TESSERA_CUDA_AWARE_MPI is 'maybe', but must be auto, 0 or 1", TESSERA_CUDA_AWARE_MPI="maybe")

sys.exit(1 if failures else 0)
