"""Runs cudarc's own tests on softcuda, in a copy of the source that cargo has.

    run.py REPOSITORY FOLDER

FOLDER takes the copy, its build and results. The version is the one of the repository's lock file.
"""

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

here = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(here.parent))

import outcomes

FEATURES = "std,driver,nvrtc,dynamic-loading,cuda-13000,f16"


def build(repository, folder):
    """Returns the test program."""
    metadata = json.loads(subprocess.run(
        ["cargo", "metadata", "--locked", "--format-version", "1"], cwd=repository, check=True,
        capture_output=True).stdout)
    package = next(each for each in metadata["packages"] if each["name"] == "cudarc")
    source = folder / f"cudarc-{package['version']}"
    if not source.exists():
        shutil.copytree(pathlib.Path(package["manifest_path"]).parent, source)
    made = subprocess.run(
        ["cargo", "test", "--no-default-features", "--features", FEATURES, "--lib", "--no-run",
         "--message-format=json"], cwd=source, check=True, stdout=subprocess.PIPE,
        env=os.environ | {"CARGO_TARGET_DIR": str(folder / "target")}).stdout
    messages = [json.loads(line) for line in made.splitlines()]
    return next(each["executable"] for each in messages if each.get("executable"))


def listed(program, *more):
    out = subprocess.run([program, "--list", *more], check=True, capture_output=True, text=True)
    return re.findall(r"^(.*): test$", out.stdout, re.MULTILINE)


def main():
    repository, folder = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    program = build(repository, folder)
    alone = set(listed(program, "--ignored"))
    results = {}
    # Each in a process of its own: some break their context on purpose.
    for name in listed(program):
        command = [program, "--exact", name] + ["--ignored"] * (name in alone)
        results[name] = outcomes.of(command, 120)
    outcomes.finish("cudarc", results, folder, here / "expected.txt")


main()
