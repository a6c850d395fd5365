#!/usr/bin/env python3
"""Compiles the CUDA kernels to PTX, or checks that the PTX in the repository is what they compile to.

    scripts/ptx.py           writes crates/tenfold-cuda/ptx/*.ptx
    scripts/ptx.py --check   compiles again, compares, and assembles for the oldest architecture, the newest and one between;
                             with --all for every one

The compiler is pinned in crates/tenfold-cuda/requirements.txt and lives in a virtual environment under the target
folder; no CUDA need be installed. PTX is made for the oldest architecture and runs on all later ones.
"""

import argparse
import concurrent.futures
import ctypes
import glob
import os
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
CRATE = os.path.join(ROOT, "crates", "tenfold-cuda")
KERNELS = os.path.join(CRATE, "kernels")
PTX = os.path.join(CRATE, "ptx")
OLDEST = "compute_75"
ARCHITECTURES = ["sm_75", "sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_120"]
# Those that tests assemble for: all of them take five minutes of a core.
TESTED = ["sm_75", "sm_90", "sm_120"]


def tools():
    """The virtual environment with the pinned compiler and assembler, made if it is not there."""
    target = os.environ.get("CARGO_TARGET_DIR", os.path.join(ROOT, "target"))
    venv = os.path.join(target, "cuda-tools")
    wanted = open(os.path.join(CRATE, "requirements.txt")).read()
    stamp = os.path.join(venv, "installed.txt")
    if not os.path.exists(stamp) or open(stamp).read() != wanted:
        print("ptx: installing the pinned compiler", file=sys.stderr)
        subprocess.run([sys.executable, "-m", "venv", "--clear", venv], check=True)
        pip = [os.path.join(venv, "bin", "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run(pip + ["-r", os.path.join(CRATE, "requirements.txt")], check=True)
        with open(stamp, "w") as f:
            f.write(wanted)
    found = lambda pattern: sorted(glob.glob(os.path.join(venv, "**", pattern), recursive=True))[0]
    return found("libnvrtc.so.12"), found("ptxas")


class Compiler:
    """NVRTC through its C interface."""

    def __init__(self, library):
        self.lib = ctypes.CDLL(library)

    def call(self, name, *args):
        code = getattr(self.lib, name)(*args)
        if code != 0:
            self.lib.nvrtcGetErrorString.restype = ctypes.c_char_p
            raise RuntimeError(f"{name}: {self.lib.nvrtcGetErrorString(code).decode()}")

    def text(self, what, program):
        size = ctypes.c_size_t()
        self.call(f"nvrtcGet{what}Size", program, ctypes.byref(size))
        buffer = ctypes.create_string_buffer(size.value)
        self.call(f"nvrtcGet{what}", program, buffer)
        return buffer.value.decode()

    def compile(self, path):
        program = ctypes.c_void_p()
        source = open(path, "rb").read()
        name = os.path.basename(path).encode()
        self.call("nvrtcCreateProgram", ctypes.byref(program), source, name, 0, None, None)
        options = [f"--gpu-architecture={OLDEST}", "--std=c++17", f"--include-path={KERNELS}", "--fmad=false"]
        options = (ctypes.c_char_p * len(options))(*[o.encode() for o in options])
        code = self.lib.nvrtcCompileProgram(program, len(options), options)
        log = self.text("ProgramLog", program)
        if code != 0:
            sys.exit(f"{path}:\n{log}")
        return self.text("PTX", program)


def kernels():
    return sorted(glob.glob(os.path.join(KERNELS, "*.cu")))


def ptx_of(path):
    return os.path.join(PTX, os.path.splitext(os.path.basename(path))[0] + ".ptx")


def write(compiler):
    os.makedirs(PTX, exist_ok=True)
    made = set()
    for path in kernels():
        text = compiler.compile(path)
        made.add(ptx_of(path))
        with open(ptx_of(path), "w") as f:
            f.write(text)
        print(f"{os.path.relpath(ptx_of(path), ROOT)}: {len(text)} bytes")
    for old in set(glob.glob(os.path.join(PTX, "*.ptx"))) - made:
        os.remove(old)


def is_current(compiler, path):
    return os.path.exists(ptx_of(path)) and compiler.compile(path) == open(ptx_of(path)).read()


def assemble(ptxas, path, arch, folder, resources):
    """Assembles one module for one architecture; returns what the assembler said, or ends the program."""
    out = os.path.join(folder, f"{os.path.basename(path)}.{arch}")
    command = [ptxas, f"-arch={arch}", path, "-o", out] + (["-v"] if resources else [])
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"{os.path.basename(path)} for {arch}:\n{done.stderr}")
    return f"{os.path.basename(path)} for {arch}:\n{done.stderr}"


def check(compiler, ptxas, architectures, resources):
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool, tempfile.TemporaryDirectory() as folder:
        there = [ptx_of(p) for p in kernels() if os.path.exists(ptx_of(p))]
        jobs = [pool.submit(assemble, ptxas, p, arch, folder, resources) for p in there for arch in architectures]
        # Meanwhile one after the other, in the order of `write`: names that the compiler makes up count from the first file on.
        stale = [p for p in kernels() if not is_current(compiler, p)]
        spare = set(glob.glob(os.path.join(PTX, "*.ptx"))) - {ptx_of(p) for p in kernels()}
        if stale or spare:
            pool.shutdown(cancel_futures=True)
            names = [os.path.basename(p) for p in stale + sorted(spare)]
            sys.exit(f"ptx: not current: {', '.join(names)}; run `make ptx`")
        try:
            for job in jobs:
                said = job.result()
                if resources:
                    print(said)
        except RuntimeError as error:
            pool.shutdown(cancel_futures=True)
            sys.exit(str(error))
    print(f"ptx: {len(kernels())} modules are current and assemble for {', '.join(architectures)}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="compare instead of writing, and assemble")
    parser.add_argument("--all", action="store_true", help="with --check: assemble for every architecture")
    parser.add_argument("--resources", action="store_true", help="with --check: what each kernel takes")
    args = parser.parse_args()
    library, ptxas = tools()
    compiler = Compiler(library)
    architectures = ARCHITECTURES if args.all else TESTED
    check(compiler, ptxas, architectures, args.resources) if args.check else write(compiler)


if __name__ == "__main__":
    main()
