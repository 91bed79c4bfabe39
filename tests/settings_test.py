"""A setting of the environment that means nothing is refused where a program starts, before it computes anything:
one line with its name, the same on every rank and printed once, exit code 1. So is one that changes results or messages
and is another on one rank.

Usage: settings_test.py MPIRUN PROGRAM [--device]: with the settings of the CUDA backend and of the emulated device.
"""
import sys

sys.dont_write_bytecode = True
from programs import Program  # noqa: E402

LIBRARY = {
    "TESSERA_ISA": "avx3", "TESSERA_CONV_CHOICE": "fastest", "TESSERA_CHECK_CALLS": "yes", "TESSERA_LOG": "loud",
    "TESSERA_ALLOCATOR": "none",
}
DEVICE = {
    "TESSERA_TF32": "yes", "TESSERA_CUDNN": "2", "TESSERA_CUDNN_WORKSPACE": "4 GiB", "TESSERA_ATTENTION_SCORES": "-1",
}
# Refused by each process for itself, before MPI starts.
EMULATED = {
    "TESSERA_EMULATED_INSTANT": "yes", "TESSERA_EMULATED_SEED": "x1", "TESSERA_EMULATED_DEVICES": "0",
    "TESSERA_EMULATED_MEMORY": "8G", "TESSERA_EMULATED_PATIENCE": "-2", "TESSERA_EMULATED_CUDA_AWARE_MPI": "2",
}
# Good values, but set for one rank alone, and what the others have.
ALONE = {"TESSERA_ISA": ("baseline", "not set"), "TESSERA_CONV_CHOICE": ("own", "measure"), "TESSERA_CHECK_CALLS": ("1", "0")}
DEVICE_ALONE = {
    "TESSERA_TF32": ("1", "0"), "TESSERA_CUDNN": ("0", "1"), "TESSERA_CUDNN_WORKSPACE": ("64", "4096"),
    "TESSERA_ATTENTION_SCORES": ("0", "2048"),
}
program = Program(*sys.argv[1:3])
on_device = "--device" in sys.argv[3:]


def rank_1_alone(name, value):
    return "sh", "-c", f'if [ "$OMPI_COMM_WORLD_RANK" = 1 ]; then export {name}={value}; fi; exec "$0" "$@"'


def main():
    with program.several():
        for name, value in {**LIBRARY, **(DEVICE if on_device else {})}.items():
            program.refused(f"{name}={value}", 2, [], name, value, environment={name: value})
        for name, (value, other) in {**ALONE, **(DEVICE_ALONE if on_device else {})}.items():
            program.refused(f"{name}={value} on rank 1", 3, [], name, "must be the same on all ranks, but is "
                            f"{other} on ranks 0, 2; {value} on rank 1", launcher=rank_1_alone(name, value))
        for name, value in (EMULATED if on_device else {}).items():
            program.refused(f"{name}={value}", 1, [], name, value, "allowed", environment={name: value})
    return 1 if program.failures else 0


if __name__ == "__main__":
    sys.exit(main())
