"""Runs the checks of the program in this folder on softcuda, each in a process of its own.

    run.py PROGRAM FOLDER
"""

import pathlib
import subprocess
import sys

here = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(here.parent))

import outcomes

program, results = sys.argv[1], {}
for name in subprocess.run(
        [program], check=True, capture_output=True, text=True).stdout.splitlines():
    results[name] = outcomes.of([program, name], 300)
    print(name, results[name][0], flush=True)
outcomes.finish("burn", results, sys.argv[2], here / "expected.txt")
