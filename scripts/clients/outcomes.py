"""What tests gave, beside what is expected of them.

A file of expected failures is a list of test names, one a line, under lines that begin with `#` and
give the reason. A test that fails must be listed, and a listed test must fail. A line that ends in
`*` stands for all tests that begin so, of which one at least must fail. After `? ` comes a test
that fails at times.
"""

import json
import pathlib
import subprocess
import sys

FAILED = {"failed", "crashed", "timeout"}


def expected(path):
    """The names in the file, each with its reason."""
    names, reason, fresh = {}, "", True
    for line in pathlib.Path(path).read_text().splitlines():
        line = line.strip()
        if line.startswith("#"):
            reason = line[1:].strip() if fresh else f"{reason} {line[1:].strip()}"
            fresh = False
        elif line:
            names[line] = reason
            fresh = True
    return names


def of(command, limit):
    """Runs a command for at most `limit` seconds. Returns its outcome and what it wrote."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=limit)
    except subprocess.TimeoutExpired:
        return "timeout", ""
    if done.returncode < 0:
        return "crashed", done.stdout + done.stderr
    return "failed" if done.returncode else "passed", done.stdout + done.stderr


def judge(client, results, listed):
    """Prints a summary and what was not expected. Returns the exit status."""
    wild = {name[:-1] for name in listed if name.endswith("*")}

    def foreseen(name):
        return (name in listed or f"? {name}" in listed
                or any(name.startswith(start) for start in wild))

    failed = [name for name, result in results.items() if result[0] in FAILED]
    surprises = [name for name in failed if not foreseen(name)]
    passes = [name for name in listed if results.get(name, ("",))[0] == "passed"]
    passes += [f"{start}*" for start in wild
               if any(name.startswith(start) for name in results)
               and not any(name.startswith(start) for name in failed)]
    for name in surprises:
        outcome, detail = results[name]
        print(f"{outcome.upper()} {name}")
        for line in detail.strip().splitlines()[-12:]:
            print(f"    {line}")
    for name in passes:
        print(f"PASSED, though a failure is expected: {name}")
    count = {}
    for outcome, _ in results.values():
        count[outcome] = count.get(outcome, 0) + 1
    words = ", ".join(f"{number} {outcome}" for outcome, number in sorted(count.items()))
    print(f"{client}: {words}; {len(failed) - len(surprises)} failures expected, "
          f"{len(surprises)} not; {len(passes)} passed that should fail")
    return 1 if surprises or passes else 0


def finish(client, results, folder, listed):
    """Writes `results.json`, judges, and ends the program."""
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "results.json").write_text(json.dumps(results, indent=1))
    sys.exit(judge(client, results, expected(listed)))
