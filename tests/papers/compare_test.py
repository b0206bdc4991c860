#!/usr/bin/env python3
"""That compare.py predicts a few quick rows of each kind, and fails where it cannot.

usage: tests/papers/compare_test.py BUILD
"""

import contextlib
import io
import sys
import unittest

import compare

BUILD = sys.argv.pop() if len(sys.argv) > 1 else "build/release"
# Memory fit only, a plan with a changed profile, a collective, and simulations of 16 ranks.
QUICK = "^(PaRO P8 LLaMA-65B with (zero3|mics)|ZeRO-Infinity Z17 10T|MiCS C24|MiCS C6|ZeRO-Infinity Z7 10B)"


def run(*words: str) -> tuple[int, str, str]:
    """Exit code, standard output and standard error of compare.py."""
    out, err = io.StringIO(), io.StringIO()
    sys.argv = ["compare.py", "--build", BUILD, *words]
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        status = compare.main()
    return status, out.getvalue(), err.getvalue()


class CompareTest(unittest.TestCase):
    def test_quick_rows_are_predicted(self) -> None:
        status, out, err = run("--quick", "--only", QUICK)
        self.assertEqual((status, err), (0, ""))
        rows = [line.split(" | ") for line in out.splitlines() if line.startswith("| ")]
        found = [row for row in rows if row[0] != "| "]
        self.assertEqual(sum(row[0] == "| P8" for row in found), 2)
        for name in ("| Z17", "| C24", "| C6", "| Z7"):
            self.assertTrue(any(row[0] == name for row in found), name)
        memory = [row for row in found if row[0] in ("| P8", "| C6")]
        self.assertTrue(all(row[-1].startswith("same") for row in memory), memory)

    def test_a_row_that_takes_too_long_is_an_error(self) -> None:
        status, out, err = run("--only", "^MiCS C24", "--cpu-seconds", "0")
        self.assertEqual(status, 1)
        self.assertIn("not done after 0 s of a processor", out)
        self.assertIn("MiCS, C24", err)

    def test_a_row_that_is_refused_is_an_error(self) -> None:
        row = compare.Result("X1", "flags that there are not", (1.0,), lambda p: 1.0, ["--no-such-flag 1"])
        papers, compare.PAPERS = compare.PAPERS, {"Nobody": [row]}
        try:
            status, out, err = run()
        finally:
            compare.PAPERS = papers
        self.assertEqual(status, 1)
        self.assertIn("unknown flag --no-such-flag", out)
        self.assertIn("Nobody, X1", err)

    def test_no_row_is_an_error(self) -> None:
        status, _, err = run("--only", "^no such paper")
        self.assertEqual(status, 1)
        self.assertIn("no row matches", err)


if __name__ == "__main__":
    unittest.main()
