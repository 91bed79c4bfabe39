#!/usr/bin/env python3
"""What nvcc says of our kernels: registers, stack and spills. Usage: cmake --build ... 2>&1 | tools/kernel_resources.py

Reads the build's output (kernels are compiled with --resource-usage) and passes on what is not about resources. A
kernel that spills registers to memory is a failure unless it is named in SPILLS, with the reason.
"""
import re
import subprocess
import sys

# By the beginning of the kernel's readable name and the architecture: why its spills are accepted.
SPILLS = {
    ("Attend<", "sm_80"): "32 to 320 bytes a thread, where the sums of a tile take nearly all registers; none on sm_90",
    ("ForwardElements<tessera::f16>", "sm_80"): "16 bytes a thread, with registers to spare: what outlives a call, it seems",
    ("MaxPool<tessera::f16>", "sm_90"): "40 bytes a thread, beside up to 27 reads of memory a window; none on sm_80",
}

FUNCTION = re.compile(r"Compiling entry function '(\w+)' for '(\w+)'")
MEMORY = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
REGISTERS = re.compile(r"Used (\d+) registers")


def readable(names):
    out = subprocess.run(["c++filt"], input="\n".join(names), capture_output=True, text=True, check=True).stdout
    return [re.sub(r"^void tessera::cuda::kernel_entry<(.*)>\(.*$", r"\1", line).replace("tessera::cuda::", "").replace(
        "(anonymous namespace)::", "") for line in out.splitlines()]


def read(lines):
    """(symbol, architecture) -> [registers, stack, spilled bytes]"""
    found, at = {}, None
    for line in lines:
        if match := FUNCTION.search(line):
            at = match.groups()
            found[at] = [0, 0, 0]
        elif (match := MEMORY.search(line)) and at:
            found[at][1:] = [int(match[1]), int(match[2]) + int(match[3])]
        elif (match := REGISTERS.search(line)) and at:
            found[at][0] = int(match[1])
        elif "ptxas info" not in line and "Function properties" not in line and line.strip():
            print(line, end="")
    return found


def main():
    found = read(sys.stdin)
    if not found:
        print("kernel_resources: the input names no kernel; build with --clean-first", file=sys.stderr)
        return 1
    names = dict(zip(found, readable([symbol for symbol, _ in found])))
    faults = 0
    for key in sorted(found, key=lambda k: -found[k][0])[:12]:
        print(f"  {found[key][0]:3} registers  {key[1]}  {names[key][:100]}")
    for key, (_, stack, spilled) in found.items():
        if spilled == 0:
            continue
        reason = next((why for (name, arch), why in SPILLS.items()
                       if names[key].startswith(name) and key[1] == arch), None)
        faults += reason is None
        print(f"  spills {spilled} bytes: {names[key]} {key[1]}: {reason or 'not accepted'}")
    stacks = sum(1 for v in found.values() if v[1] > 0)
    print(f"{len(found)} kernels, at most {max(v[0] for v in found.values())} registers, {stacks} with a stack frame, "
          f"{sum(1 for v in found.values() if v[2] > 0)} spill, {faults} without a reason")
    return 1 if faults else 0


sys.exit(main())
