#!/usr/bin/env python3
"""Writes a C source that stands in for the driver's library, libcuda.so.1, where cuDNN judges plans without one.

Usage: driver_stand_in.py STUB OUT.c. Every function that the toolkit's stub exports and that this file does not
answer says CUDA_ERROR_NOT_SUPPORTED. cuDNN's run-time compiled engines look the library up to load what they
compiled; nothing is ever executed. Made in the test's folder alone: never on the library path of a normal run.
"""
import pathlib
import subprocess
import sys

# name: (parameters, body). Handles are made up.
ANSWERS = {
    "cuInit": ("unsigned flags", "return 0;"),
    "cuDriverGetVersion": ("int *version", "*version = 13000; return 0;"),
    "cuDeviceGetCount": ("int *count", "*count = 1; return 0;"),
    "cuDeviceGet": ("int *device, int index", "*device = index; return index == 0 ? 0 : 101;"),
    "cuDeviceGetName": ("char *name, int n, int device", 'snprintf(name, (size_t)n, "NVIDIA H200"); return 0;'),
    "cuDeviceTotalMem_v2": ("size_t *bytes, int device", "*bytes = 150754820096UL; return 0;"),
    "cuDeviceComputeCapability": ("int *major, int *minor, int device", "*major = 9; *minor = 0; return 0;"),
    "cuDeviceGetAttribute": ("int *value, int attribute, int device", "*value = device_attribute(attribute); return 0;"),
    "cuCtxGetCurrent": ("void **context", "*context = handle(); return 0;"),
    "cuCtxGetDevice": ("int *device", "*device = 0; return 0;"),
    "cuLibraryLoadData": ("void **library", "*library = handle(); return 0;"),
    "cuLibraryGetKernel": ("void **kernel", "*kernel = handle(); return 0;"),
    "cuLibraryGetModule": ("void **module", "*module = handle(); return 0;"),
    "cuLibraryUnload": ("void *library", "return 0;"),
    "cuModuleLoadData": ("void **module", "*module = handle(); return 0;"),
    "cuModuleLoadDataEx": ("void **module", "*module = handle(); return 0;"),
    "cuModuleGetFunction": ("void **function", "*function = handle(); return 0;"),
    "cuModuleUnload": ("void *module", "return 0;"),
    "cuKernelGetFunction": ("void **function", "*function = handle(); return 0;"),
    "cuFuncGetAttribute": ("int *value", "*value = 0; return 0;"),
    "cuKernelGetAttribute": ("int *value", "*value = 0; return 0;"),
    "cuFuncSetAttribute": ("void *function", "return 0;"),
    "cuKernelSetAttribute": ("int attribute", "return 0;"),
    "cuGetErrorString": ("int code, const char **text", '*text = "no device"; return 0;'),
    "cuGetErrorName": ("int code, const char **text", '*text = "CUDA_ERROR_NOT_SUPPORTED"; return 0;'),
    "cuGetProcAddress": ("const char *name, void **function", "return found(name, function, 0);"),
    "cuGetProcAddress_v2": ("const char *name, void **function, int version, unsigned long flags, int *status",
                            "return found(name, function, status);"),
}

HEAD = """#define _GNU_SOURCE
#include <dlfcn.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

static void *handle(void) { static char room[4096]; return room; }
/* cudaDeviceAttr and CUdevice_attribute share their numbers. */
static int device_attribute(int a) {
  switch (a) {
    case 1: return 1024;      /* threads per block */
    case 8: return 49152;     /* shared memory per block */
    case 10: return 32;       /* warp size */
    case 12: return 65536;    /* registers per block */
    case 16: return 132;      /* multiprocessors */
    case 38: return 62914560; /* L2 cache */
    case 39: return 2048;     /* threads per multiprocessor */
    case 75: return 9;        /* compute capability */
    case 76: return 0;
    case 81: return 233472;   /* shared memory per multiprocessor */
    case 82: return 65536;
    case 97: return 232448;   /* shared memory per block, opted in */
    default: return 0;
  }
}
static int found(const char *name, void **function, int *status) {
  char versioned[256];
  snprintf(versioned, sizeof versioned, "%s_v2", name);
  void *self = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
  *function = self ? dlsym(self, versioned) : NULL;
  if (!*function && self) *function = dlsym(self, name);
  if (status) *status = *function ? 0 : 1;
  return *function ? 0 : 500;
}
"""


def main():
    stub, out = sys.argv[1:]
    lines = subprocess.run(["nm", "-D", "--defined-only", stub], check=True, capture_output=True, text=True).stdout
    names = sorted({line.split()[-1].split("@")[0] for line in lines.splitlines()})
    text = HEAD + "".join(f"int {n}({parameters}) {{ {body} }}\n" for n, (parameters, body) in ANSWERS.items())
    text += "".join(f"int {n}(void) {{ return 801; }}\n" for n in names if n.startswith("cu") and n not in ANSWERS)
    pathlib.Path(out).write_text(text)


main()
