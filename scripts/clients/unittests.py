"""Runs unittest modules, each in a process of its own, and goes on after a crash.

`run` starts this file once for each module. The child appends a line to a journal before and after
each test, so that what was running when it ended is known. It is started anew for what is left.
"""

import json
import os
import pathlib
import signal
import subprocess
import sys
import unittest

LIMIT = 120  # seconds a test may take


def run(python, modules, folder, environment, extra=()):
    """Returns {test: (outcome, detail)}. Modules are names, or paths of files."""
    folder = pathlib.Path(folder).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    results = {}
    for module in modules:
        journal = folder / f"{pathlib.Path(module).stem if '/' in module else module}.journal"
        journal.unlink(missing_ok=True)
        while True:
            done = read(journal)
            command = [python, __file__, module, str(journal), *extra]
            with open(journal.with_suffix(".log"), "ab") as log:
                child = subprocess.run(
                    command, cwd=folder, env=environment, stdout=log, stderr=log,
                    check=False)
            after = read(journal)
            started = [name for name, result in after.items() if result[0] == "started"]
            if child.returncode == 0 and not started:
                break
            if not started and len(after) == len(done):
                tail = journal.with_suffix(".log").read_text(errors="replace")[-2000:]
                after[f"{module} (as a whole)"] = ("crashed", f"{child.returncode}\n{tail}")
                write(journal, after)
                break
            for name in started:
                outcome = "timeout" if child.returncode == -signal.SIGKILL else "crashed"
                after[name] = (outcome, f"the process ended with {child.returncode}")
            write(journal, after)
        found = read(journal)
        results |= found
        bad = sum(result[0] in ("failed", "crashed", "timeout") for result in found.values())
        print(f"{module}: {len(found)} tests, {bad} failed", flush=True)
    return results


def read(journal):
    results = {}
    if journal.exists():
        for line in journal.read_text().splitlines():
            name, outcome, detail = json.loads(line)
            results[name] = (outcome, detail)
    return results


def write(journal, results):
    lines = [json.dumps([name, *result]) for name, result in results.items()]
    journal.write_text("".join(line + "\n" for line in lines))


class Journal(unittest.TestResult):
    def __init__(self, file):
        super().__init__()
        self.file, self.buffer, self.failed = file, False, False

    def note(self, test, outcome, detail=""):
        self.file.write(json.dumps([test.id(), outcome, detail[-3000:]]) + "\n")
        self.file.flush()

    def startTest(self, test):
        self.bad = False
        self.note(test, "started")
        # A test that hangs in foreign code is killed: Python would never see a gentler signal.
        self.killer = subprocess.Popen(
            ["sh", "-c", f"sleep {LIMIT}; kill -9 {os.getpid()}"], start_new_session=True)

    def stopTest(self, test):
        os.killpg(self.killer.pid, signal.SIGKILL)
        self.killer.wait()

    def addSuccess(self, test):
        if not self.bad:
            self.note(test, "passed")

    def addError(self, test, error):
        self.bad = True
        if error[0].__name__ == "Skipped":  # pytest's way to skip
            self.addSkip(test, str(error[1]))
            return
        self.note(test, "failed", self._exc_info_to_string(error, test))
        # What failed may have broken the context: the rest runs in a new process.
        self.failed = True
        self.stop()

    addFailure = addError

    def addSubTest(self, test, subtest, error):
        if error is not None:
            self.addError(test, error)

    def addSkip(self, test, reason):
        self.note(test, "skipped", reason)

    def addExpectedFailure(self, test, error):
        self.note(test, "xfailed")

    def addUnexpectedSuccess(self, test):
        self.note(test, "failed", "it passed, though its package expects a failure")


def tests_of(suite):
    for test in suite:
        if isinstance(test, unittest.TestSuite):
            yield from tests_of(test)
        else:
            yield test


def child(module, journal, start=None):
    if start:
        # What the package's own runner does before tests.
        exec(start, {})
    journal = pathlib.Path(journal)
    done = read(journal)
    loader = unittest.defaultTestLoader
    if "/" in module:
        path = pathlib.Path(module)
        sys.path.insert(0, str(path.parent))
        suite = loader.loadTestsFromName(path.stem)
    else:
        suite = loader.loadTestsFromName(module)
    left = unittest.TestSuite(test for test in tests_of(suite) if test.id() not in done)
    with open(journal, "a") as file:
        result = Journal(file)
        left.run(result)
    return 3 if result.failed else 0


if __name__ == "__main__":
    sys.exit(child(*sys.argv[1:]))
