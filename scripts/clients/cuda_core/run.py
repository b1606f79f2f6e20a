"""Runs the tests of cuda.core and cuda.bindings in this folder on softcuda.

    run.py PYTHON FOLDER

PYTHON is an environment as `run` makes it, FOLDER takes journals and results.
"""

import os
import pathlib
import sys

here = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(here.parent))

import outcomes
import unittests

results = unittests.run(
    sys.argv[1], [str(path) for path in sorted(here.glob("test_*.py"))], sys.argv[2], os.environ)
outcomes.finish("cuda_core", results, sys.argv[2], here / "expected.txt")
