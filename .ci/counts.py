"""Sums the counts of test runners on standard input: prints `PASSED FAILED`."""
import re
import sys

text = sys.stdin.read()
passed = failed = 0
# cargo test prints a line per binary; the case runners print one line at the end.
for p, f in re.findall(r"^test result: \w+\. (\d+) passed; (\d+) failed", text, re.M) or re.findall(
    r"^(\d+) passed, (\d+) failed$", text, re.M
):
    passed += int(p)
    failed += int(f)
print(passed, failed)
