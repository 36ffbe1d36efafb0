"""One setting of one peer, in a process of its own: `python worker.py '{...}'`.

Answers each line of standard input, a number of units, with the milliseconds of each, in JSON. Its
first line, the number of the model's parameters without positions, says that it is ready. Ends with
its input.
"""

import json
import sys
from typing import Any


def main() -> None:
    """Answers, until nobody asks any more."""
    answers, sys.stdout = sys.stdout, sys.stderr  # libraries print where they like

    def answer(value: Any) -> None:
        print(json.dumps(value), file=answers, flush=True)

    try:
        from jobs import prepared  # here, so that a PyTorch that does not load is a reason too

        measure, parameters = prepared(json.loads(sys.argv[1]))
        answer(parameters)
        for line in sys.stdin:
            answer(measure(int(line)))
    except Exception as error:  # a compiler that is missing, memory, a PyTorch that cannot do it
        text = str(error).strip().splitlines()
        answer({"failed": f"{type(error).__name__}: {text[0] if text else 'no reason given'}"})


if __name__ == "__main__":
    main()
