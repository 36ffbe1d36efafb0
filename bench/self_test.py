"""Checks of the comparison, on made-up numbers, and of the peer, on TinyGPT's golden values.

`python bench/compare.py --self-test [TINYGPT]`. What needs packages that are not there is skipped,
and so is what needs a tinygpt, unless one is named there or in the variable TINYGPT.
"""

import unittest

ROOMS = ("test_race", "test_sides")


def main() -> None:
    """Runs the checks, and says what was skipped and why."""
    checks = unittest.defaultTestLoader.loadTestsFromNames(ROOMS)
    result = unittest.TextTestRunner().run(checks)
    for reason in sorted({reason for _, reason in result.skipped}):
        print(f"skipped: {reason}")
    raise SystemExit(not result.wasSuccessful())


if __name__ == "__main__":
    main()
