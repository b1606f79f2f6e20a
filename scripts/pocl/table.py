#!/usr/bin/env python3
"""Prints softcuda beside pocl, which runs OpenCL on the processor: the same kernels, as a table.

    python3 scripts/pocl/table.py [--rounds 3] [--environment FOLDER] [--package]

The benchmark of softcuda (`cargo bench -p softcuda`) and pocl's side (`measure.py`) run in turns,
for some rounds. Every time is the least of its rounds, so work of others that delays one round does
not count. Both sides check their results, and use all cores.

pocl is the one of the system (Debian: pocl-opencl-icd), or with --package the one of Python's
packages. Its kernel cache is off. A virtual environment gets the packages; it is temporary unless
--environment names a folder.
"""

import argparse
import json
import math
import os
import pathlib
import subprocess
import tempfile
import venv

PACKAGES = ["numpy==2.4.6", "pyopencl==2026.1.4"]
POCL = ["pocl-binary-distribution==3.0"]
HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent


def python_of(environment: pathlib.Path, packages: list[str]) -> pathlib.Path:
    """Installs the packages and gives the interpreter that has them."""
    python = environment / "bin" / "python"
    if not python.exists():
        venv.create(environment, with_pip=True)
    pip = [python, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, "install", "--only-binary=:all:", *packages], check=True)
    return python


def milliseconds(cell: str) -> float:
    number, unit = cell.split()
    assert unit == "ms", cell
    return float(number)


def softcuda() -> dict[str, dict]:
    """Runs the benchmark: what its tables say of each kernel."""
    # Every row's name contains the empty text. Without a name the benchmark goes on with other tables.
    bench = ["cargo", "bench", "--quiet", "-p", "softcuda", "--locked", "--", ""]
    text = subprocess.run(bench, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout
    tables = [[]]
    for line in text.splitlines():
        if line.startswith("| "):
            tables[-1].append([cell.strip() for cell in line.strip("|").split("|")])
        elif tables[-1] and not line.startswith("|"):
            tables.append([])
    work, starts = (table[1:] for table in tables[:2])
    found = {}
    for (name, later, *_), (kernel, compile, *_) in zip(work, starts, strict=True):
        # A kernel's first row; another one may run it in other blocks.
        row = {"work": name, "later": milliseconds(later), "compile": milliseconds(compile)}
        found.setdefault(kernel, row)
    return found


def pocl(python: pathlib.Path) -> dict:
    environment = os.environ | {"POCL_KERNEL_CACHE": "0"}
    done = subprocess.run([python, HERE / "measure.py"], env=environment, check=True, stdout=subprocess.PIPE)
    return json.loads(done.stdout)


def mean(ratios: list[float]) -> float:
    return math.exp(sum(map(math.log, ratios)) / len(ratios))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3, help="how often both sides run")
    parser.add_argument("--environment", type=pathlib.Path, help="a folder for the virtual environment, kept")
    parser.add_argument("--package", action="store_true", help="take pocl from Python's packages")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        environment = arguments.environment or pathlib.Path(scratch) / "venv"
        python = python_of(environment, PACKAGES + (POCL if arguments.package else []))
        rounds = [(softcuda(), pocl(python)) for _ in range(arguments.rounds)]

    ours, theirs = rounds[0]
    least = lambda side, kernel, what: min(side(found)[kernel][what] for found in rounds)
    print(f"{theirs['version']}, {theirs['threads']} threads; the least of {len(rounds)} rounds\n")
    print("| work | kernel | softcuda | pocl | pocl / softcuda | softcuda compiles | pocl's first launch |")
    print("|---|---|---|---|---|---|---|")
    ratios, starts = [], []
    for kernel, row in ours.items():
        # Tensor cores have no counterpart in OpenCL C.
        if kernel not in theirs["kernels"]:
            continue
        own = least(lambda found: found[0], kernel, "later")
        compiles = least(lambda found: found[0], kernel, "compile")
        other = least(lambda found: found[1]["kernels"], kernel, "later")
        first = least(lambda found: found[1]["kernels"], kernel, "first")
        ratios.append(other / own)
        # A first launch compiles, and then runs as a later one does.
        starts.append((first - other) / compiles)
        times = f"{own:.3f} ms | {other:.3f} ms | {ratios[-1]:.2f}"
        print(f"| {row['work']} | {kernel} | {times} | {compiles:.2f} ms | {first:.1f} ms |")
    print(f"\ngeometric mean of {len(ratios)} ratios of times: {mean(ratios):.2f}")
    print(f"geometric mean of how often softcuda compiles while pocl compiles once: {mean(starts):.1f}")


if __name__ == "__main__":
    main()
