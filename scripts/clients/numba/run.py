"""Runs numba-cuda's own tests on softcuda.

    run.py [--only TEXT] PYTHON FOLDER

PYTHON is an environment as `run` makes it, FOLDER takes journals and results.
"""

import argparse
import os
import pathlib
import subprocess
import sys

here = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(here.parent))

import outcomes
import unittests

FOLDERS = ["cudadrv", "cudapy", "nrt", "doc_examples", "nocuda", "core"]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", default="")
    parser.add_argument("python")
    parser.add_argument("folder")
    options = parser.parse_args()
    where = subprocess.run(
        [options.python, "-c", "import numba_cuda; print(numba_cuda.__path__[0])"],
        check=True, capture_output=True, text=True).stdout.strip()
    tests = pathlib.Path(where) / "numba/cuda/tests"
    modules = [
        f"numba.cuda.tests.{folder}.{path.stem}"
        for folder in FOLDERS for path in sorted((tests / folder).glob("test_*.py"))
    ]
    modules = [module for module in modules if options.only in module]
    # Some tests take any warning for a failure. This one says that nvJitLink is not installed.
    environment = os.environ | {"PYTHONWARNINGS": "ignore:cuda.bindings.nvjitlink is not available"}
    results = unittests.run(options.python, modules, options.folder, environment)
    results = {name.removeprefix("numba.cuda.tests."): result for name, result in results.items()}
    if options.only:
        sys.exit(outcomes.judge("numba", results, outcomes.expected(here / "expected.txt")))
    outcomes.finish("numba", results, options.folder, here / "expected.txt")


main()
