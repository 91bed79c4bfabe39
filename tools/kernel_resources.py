#!/usr/bin/env python3
"""What nvcc says of our kernels: registers, stack and spills. Usage: cmake --build ... 2>&1 | tools/kernel_resources.py

Reads the build's output (kernels are compiled with --resource-usage) and passes on what is not about resources. A
kernel that spills registers to memory is a failure unless SPILLS names it for that architecture, with at least as many
bytes and the reason. So is a kernel in SPILLS that spills nothing.

  --report FILE   all kernels of the input, a line each
  --whole         all of the library was built, so a kernel in SPILLS that was not is a failure, too
"""
import argparse
import pathlib
import re
import subprocess
import sys

ALL = "two sums of a tile, and what is dropped of it, take all 255 registers; none on sm_90"
DRAWN = "held to 128 registers, so that of two blocks one computes while the other draws"
LOADED = "held to 128 registers, so that of two blocks one computes while the other loads; none on sm_90"
SIX = "nvcc aims at six blocks, 40 registers, and at five for the other types, 48, without spills; none on sm_90"
# By the kernel's readable name and the architecture: the bytes (stored and loaded again) that are accepted, and why.
SPILLS = {
    ("Attend<tessera::bf16, 8, false>", "sm_80"): (8, LOADED),
    ("Attend<tessera::f16, 8, false>", "sm_80"): (16, LOADED),
    ("GradientOfKeys<float, 8, true>", "sm_80"): (8, ALL),
    ("GradientOfKeys<tessera::bf16, 8, true>", "sm_80"): (8, ALL),
    ("GradientOfKeys<tessera::f16, 8, true>", "sm_80"): (8, ALL),
    ("GradientOfKeys<float, 2, true>", "sm_80"): (368, DRAWN),
    ("GradientOfKeys<float, 2, true>", "sm_90"): (416, DRAWN),
    ("GradientOfKeys<tessera::bf16, 2, true>", "sm_80"): (368, DRAWN),
    ("GradientOfKeys<tessera::bf16, 2, true>", "sm_90"): (416, DRAWN),
    ("GradientOfKeys<tessera::f16, 2, true>", "sm_80"): (368, DRAWN),
    ("GradientOfKeys<tessera::f16, 2, true>", "sm_90"): (416, DRAWN),
    ("GradientOfRows<float, 2, true>", "sm_80"): (8, DRAWN),
    ("GradientOfRows<float, 2, true>", "sm_90"): (8, DRAWN),
    ("GradientOfRows<tessera::bf16, 2, true>", "sm_80"): (8, DRAWN),
    ("GradientOfRows<tessera::bf16, 2, true>", "sm_90"): (8, DRAWN),
    ("GradientOfRows<tessera::f16, 2, true>", "sm_80"): (8, DRAWN),
    ("GradientOfRows<tessera::f16, 2, true>", "sm_90"): (16, DRAWN),
    ("GradientOfRows<float, 4, true>", "sm_80"): (72, DRAWN),
    ("GradientOfRows<float, 4, true>", "sm_90"): (64, DRAWN),
    ("GradientOfRows<tessera::bf16, 4, true>", "sm_80"): (72, DRAWN),
    ("GradientOfRows<tessera::bf16, 4, true>", "sm_90"): (64, DRAWN),
    ("GradientOfRows<tessera::f16, 4, true>", "sm_80"): (72, DRAWN),
    ("GradientOfRows<tessera::f16, 4, true>", "sm_90"): (64, DRAWN),
    ("ForwardElements<tessera::f16>", "sm_80"): (16, SIX),
    ("MaxPool<tessera::f16>", "sm_90"): (40, "beside up to 27 reads of memory a window; none on sm_80"),
}

FUNCTION = re.compile(r"Compiling entry function '(\w+)' for '(\w+)'")
MEMORY = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
REGISTERS = re.compile(r"Used (\d+) registers")


def readable(names):
    out = subprocess.run(["c++filt"], input="\n".join(names), capture_output=True, text=True, check=True).stdout
    return [re.sub(r"^void tessera::cuda::kernel_entry<(.*)>\(.*$", r"\1", line).replace("tessera::cuda::", "").replace(
        "(anonymous namespace)::", "").strip() for line in out.splitlines()]


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


def write(path, found, names):
    lines = [f"{registers:9}  {stack:5}  {spilled:7}  {key[1]:12}  {names[key]}\n"
             for key, (registers, stack, spilled) in sorted(found.items(), key=lambda item: (names[item[0]], item[0][1]))]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"registers  stack  spilled  architecture  kernel\n{''.join(lines)}")
    print(f"registers, stack and spilled bytes of all kernels: {path}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--report", type=pathlib.Path)
    parser.add_argument("--whole", action="store_true")
    options = parser.parse_args()
    found = read(sys.stdin)
    if not found:
        print("kernel_resources: the input names no kernel" + ("" if options.whole else ": none had to be compiled"),
              file=sys.stderr)
        return 1 if options.whole else 0
    names = dict(zip(found, readable([symbol for symbol, _ in found])))
    faults = 0
    for key in sorted(found, key=lambda k: -found[k][0])[:12]:
        print(f"  {found[key][0]:3} registers  {key[1]}  {names[key][:100]}")
    for key, (_, _, spilled) in found.items():
        accepted, reason = SPILLS.get((names[key], key[1]), (0, "not accepted"))
        if spilled > accepted:
            faults += 1
            print(f"  spills {spilled} bytes: {names[key]} {key[1]}: " +
                  (f"{accepted} are accepted: {reason}" if accepted else reason))
        elif spilled:
            print(f"  spills {spilled} bytes: {names[key]} {key[1]}: {reason}")
        elif accepted:
            faults += 1
            print(f"  spills nothing any more, and is listed: {names[key]} {key[1]}")
    built = {(names[key], key[1]) for key in found}
    for name, architecture in SPILLS:
        if options.whole and (name, architecture) not in built:
            faults += 1
            print(f"  was not built, or is no kernel any more, and is listed: {name} {architecture}")
    if options.report:
        write(options.report, found, names)
    stacks = sum(1 for v in found.values() if v[1] > 0)
    print(f"{len(found)} kernels, at most {max(v[0] for v in found.values())} registers, {stacks} with a stack frame, "
          f"{sum(1 for v in found.values() if v[2] > 0)} spill, {faults} refused")
    return 1 if faults else 0


sys.exit(main())
