"""The comparison itself, on made-up numbers: turns, ratios, which settings count, tables, chart."""

import dataclasses
import tempfile
import unittest
from contextlib import ExitStack, redirect_stdout
from io import StringIO
from pathlib import Path
from unittest import mock

import compare
import report
import rows
from measure import Block, Pair, PeerError, Race, Runner, in_turn, ratio, unit_ms, units_in
from peers import Candidate

try:
    import chart
except ImportError:
    chart = None


class DriftingMachine:
    """A machine that takes twice as long for everything after every 20 s of work."""

    def __init__(self) -> None:
        self.now = 0.0
        self.order = ""

    def run(self, name: str, seconds: float) -> Block:
        """Three units of work."""
        took = [seconds * 2 ** (self.now / 20) for _ in range(3)]
        self.now += sum(took)
        self.order += name
        return [1e3 * unit for unit in took]


def pairs_of(m: DriftingMachine, ours: Runner, peers: list[Runner], n: int, s: float) -> list:
    """The pairs of each peer."""
    races = [Race(ours, peer) for peer in peers]
    in_turn(races, n, s, lambda: m.now)
    return [race.pairs for race in races]


class Measuring(unittest.TestCase):
    """Medians, ratios and turns."""

    def test_a_pair_compares_medians_so_that_one_slow_step_does_not_count(self) -> None:
        self.assertEqual(Pair(ours=[10, 10, 1000], peer=[5, 20, 20]).ratio, 2)

    def test_the_ratio_is_the_median_of_the_pairs_not_their_mean(self) -> None:
        pairs = [Pair([10], [10]), Pair([10], [20]), Pair([1], [30])]
        self.assertEqual(ratio(pairs), 2)
        self.assertEqual(unit_ms([[1, 2, 9], [4], [30, 50, 40]]), 4)

    def test_ours_and_the_peers_take_turns(self) -> None:
        m = DriftingMachine()
        peers = [lambda: m.run("a", 1), lambda: m.run("b", 1)]
        pairs = pairs_of(m, lambda: m.run("t", 1), peers, 2, 1e9)
        self.assertEqual(m.order, "tatbtatb")
        self.assertEqual([len(of) for of in pairs], [2, 2])

    def test_a_peer_that_fails_on_the_way_ends_its_own_race_only(self) -> None:
        m = DriftingMachine()
        answers = iter([m.run("a", 1)])

        def dying() -> Block:
            try:
                return next(answers)
            except StopIteration:
                raise PeerError("out of memory") from None

        races = [Race(lambda: m.run("t", 1), p) for p in (dying, lambda: m.run("b", 1))]
        in_turn(races, 4, 1e9, lambda: m.now)
        self.assertEqual([len(race.pairs) for race in races], [0, 4])
        self.assertEqual([race.failed for race in races], ["out of memory", ""])

    def test_a_machine_that_slows_down_favours_nobody(self) -> None:
        m = DriftingMachine()
        peer = [lambda: m.run("p", 0.15)]
        (pairs,) = pairs_of(m, lambda: m.run("t", 0.1), peer, 20, 1e9)
        self.assertGreater(pairs[-1].ours[0], 1.9 * pairs[0].ours[0])
        self.assertAlmostEqual(ratio(pairs), 1.5, delta=0.08)

        m = DriftingMachine()
        ours = [m.run("t", 0.1) for _ in range(20)]
        theirs = [m.run("p", 0.15) for _ in range(20)]
        self.assertGreater(unit_ms(theirs) / unit_ms(ours), 1.9, "not in turn it is wrong")

    def test_rounds_end_with_the_time_but_there_are_two(self) -> None:
        m = DriftingMachine()
        counts = []
        for rounds, seconds in ((4, 0), (4, 7), (4, 1e9), (1, 0)):
            m.now = 0
            ours, peer = lambda: m.run("t", 0.5), lambda: m.run("p", 0.5)
            (pairs,) = pairs_of(m, ours, [peer], rounds, seconds)
            counts.append(len(pairs))
        self.assertEqual(counts, [2, 3, 4, 1])

    def test_a_block_has_the_units_that_fit_between_the_least_and_the_most(self) -> None:
        self.assertEqual([units_in(2, ms) for ms in (100, 1, 5000)], [20, 50, 2])


class Shapes(unittest.TestCase):
    """The count of parameters and FLOPs that every figure rests on."""

    def test_parameters_are_those_of_nanogpt_and_gpt2(self) -> None:
        gpt2 = dataclasses.replace(rows.GPT2, vocab_size=50257)
        for shape, total in ((rows.SMALL, 804_096), (rows.CHAR, 10_745_088), (gpt2, 124_439_808)):
            positions = shape.block_size * shape.n_embd
            self.assertEqual(shape.parameters() + positions, total)

    def test_a_token_of_the_char_model_costs_71_mflop(self) -> None:
        self.assertEqual(rows.CHAR.flop_per_token(), 6 * 10_646_784 + 12 * 6 * 384 * 256)
        row = rows.Row("x", "x", rows.CHAR, rows.TRAINS, batch_size=16)
        speed = row.speed(2000.0)
        self.assertEqual(speed["tokens_per_s"], 16 * 256 / 2)
        self.assertAlmostEqual(speed["gflop_per_s"], 2048 * 70.958592e6 / 1e9)


class FakeWorker:
    """A worker whose speed is known."""

    speeds = {"f32": 30.0, "f32, compiled": None, "f32, matmul medium": 20.0}
    dies = {"f32": 1000}
    """How many blocks a setting answers; others any number."""
    alive = most = 0

    def __init__(self, python: str, row: rows.Row, peer: rows.Peer, setting: rows.Setting, n: int):
        self.left = self.dies.get(setting.name, 1000)
        self.ms = self.speeds.get(setting.name, 40.0)
        self.parameters = row.shape.parameters()
        FakeWorker.alive += 1
        FakeWorker.most = max(FakeWorker.most, FakeWorker.alive)

    def start(self) -> None:
        if self.ms is None:
            raise PeerError("no compiler")

    def block(self, units: int) -> Block:
        self.left -= 1
        if self.left < 0:
            raise PeerError("ended with code 1")
        return [self.ms] * units

    def close(self) -> None:
        FakeWorker.alive -= 1

    def __enter__(self) -> "FakeWorker":
        return self

    def __exit__(self, *_: object) -> None:
        pass


class FakeProgram:
    """A TinyGPT whose speed is known."""

    speeds = {"f32": 40.0, "bf16": 20.0, "int8": 10.0}
    computes_with = "2 threads, avx2"

    def __init__(self) -> None:
        self.commands = {(row.name, w): "tinygpt" for row in rows.ROWS for w in self.speeds}

    def block(self, row: rows.Row, weights: str, units: int) -> Block:
        return [self.speeds[weights]] * units

    def runs_as(self, row: rows.Row, weights: str) -> str:
        return weights


class Racing(unittest.TestCase):
    """Which settings are measured, and which one counts."""

    row = next(row for row in rows.ROWS if row.name == "char")
    nobody = {"name": "PyTorch", "runs_as": "f32", "settings": []}

    def candidate(self, name: str, pairs: list[Pair]) -> Candidate:
        setting = next(s for s in rows.PYTORCH.settings if s.name == name)
        return Candidate(rows.PYTORCH, setting, None, trial_ms=10.0, pairs=pairs)

    def tried(self, multiplies_bf16: bool) -> list[Candidate]:
        FakeWorker.alive = FakeWorker.most = 0
        here = mock.patch.object(compare.machine, "multiplies_bf16", lambda: multiplies_bf16)
        with mock.patch.object(compare, "Worker", FakeWorker), mock.patch.object(compare, "say"):
            plan = compare.Plan("python", 2, 1, 1.0)
            with here, ExitStack() as workers:
                return compare.try_all(self.row, rows.PYTORCH, plan, workers)

    def test_bf16_is_not_tried_in_training_where_the_processor_lacks_it(self) -> None:
        skipped = [c.setting.name for c in self.tried(False) if "bf16" in c.skipped]
        self.assertEqual(skipped, ["bf16 autocast", "bf16 autocast, compiled"])

    def test_only_the_fastest_settings_stay_and_few_are_alive_at_once(self) -> None:
        tried = self.tried(True)
        self.assertEqual([c.setting.name for c in tried if c.worker], ["f32", "f32, matmul medium"])
        self.assertEqual([c.skipped for c in tried if c.skipped], ["no compiler"])
        self.assertEqual(FakeWorker.most, rows.PYTORCH.finalists + 1)

    def measured(self, name: str, speeds: dict, dies: dict, dtype: str = "f32") -> dict:
        row = next(row for row in rows.ROWS if row.name == name)
        plan = compare.Plan("python", 2, 3, 1.0, dtype)
        with ExitStack() as patches:
            for patch in (
                mock.patch.object(compare, "Worker", FakeWorker),
                mock.patch.object(compare, "say"),
                mock.patch.object(compare.machine, "multiplies_bf16", lambda: True),
                mock.patch.multiple(FakeWorker, speeds=speeds, dies=dies, alive=0, most=0),
            ):
                patches.enter_context(patch)
            return compare.measure_row(row, FakeProgram(), plan)

    def test_a_peer_that_dies_between_rounds_is_skipped_and_the_others_go_on(self) -> None:
        # The trial asks twice of a setting.
        result = self.measured("char", {"f32": 30.0, "f32, matmul medium": 20.0}, {"f32": 3})
        (peer,) = result["peers"]
        found = {one["name"]: one for one in peer["settings"]}
        self.assertEqual(found["f32"], {"name": "f32", "skipped": "ended with code 1"})
        self.assertEqual((peer["best"], peer["ratio"]), ("f32, matmul medium", 0.5))

    def test_texts_are_measured_in_each_format_beside_the_best_peer(self) -> None:
        others_of = {"f32": {"bf16": 1.5, "int8": 3}, "bf16": {"f32": 0.75, "int8": 3}}
        for dtype, others in others_of.items():
            result = self.measured("generate-char", {"f32": 50.0, "bf16": 30.0}, {}, dtype)
            self.assertEqual({one["runs_as"]: one["ratio"] for one in result["formats"]}, others)
            self.assertEqual({peer["runs_as"] for peer in result["peers"]}, {dtype})
            self.assertEqual({one["best"] for one in result["formats"]}, {"bf16"})

    def test_formats_have_a_speed_where_no_peer_can_be_measured(self) -> None:
        nothing = {"f32": None, "bf16": None}
        dying = {"f32": 2, "bf16": 2}
        for speeds, dies in ((nothing, {}), ({"f32": 50.0, "bf16": 30.0}, dying)):
            result = self.measured("generate-char", speeds, dies)
            self.assertEqual([one["tinygpt"]["unit_ms"] for one in result["formats"]], [20, 10])
            table = report.comparison([result])
            self.assertIn("| generate, 10.7M | int8 | 100 | no peer | - | - |", table)

    def test_a_peer_that_dies_beside_the_formats_keeps_its_own_ratio(self) -> None:
        result = self.measured("generate-char", {"f32": 50.0, "bf16": 30.0}, {"bf16": 5})
        self.assertEqual([peer["ratio"] for peer in result["peers"]], [0.75, 0.75])
        self.assertEqual({one["skipped"] for one in result["formats"]}, {"ended with code 1"})
        self.assertEqual([one["tinygpt"]["unit_ms"] for one in result["formats"]], [20, 10])

    def test_a_peer_of_another_size_is_refused(self) -> None:
        with self.assertRaises(SystemExit):
            compare.check_parameters(self.row, rows.PYTORCH, self.row.shape.parameters() + 1)

    def test_attention_written_out_is_tried_only_with_dropout(self) -> None:
        counts = {row.name: len(row.settings(rows.PYTORCH)) for row in rows.ROWS}
        self.assertEqual((counts["char"], counts["char-dropout"]), (5, 7))

    def test_the_setting_that_is_hardest_to_beat_counts(self) -> None:
        slow = self.candidate("f32", [Pair([100], [300]), Pair([100], [310])])
        fast = self.candidate("bf16 autocast", [Pair([100], [80]), Pair([200], [150])])
        result = report.row_result(self.row, [slow, fast], [100], "f32")
        (peer,) = result["peers"]
        self.assertEqual(peer["best"], "bf16 autocast")
        self.assertAlmostEqual(peer["ratio"], 0.775)
        self.assertEqual((peer["ratio_low"], peer["ratio_high"]), (0.75, 0.8))
        self.assertEqual(peer["tinygpt"]["unit_ms"], 150)
        self.assertEqual(peer["peer"]["unit_ms"], 115)

    def results(self) -> dict:
        slow = self.candidate("f32", [Pair([1000], [4096])])
        skipped = self.candidate("f32, compiled", [])
        skipped.skipped = "no compiler"
        row = report.row_result(self.row, [slow, skipped], [1000], "f32")
        row["computes_with"] = "2 threads, avx2"
        row["measured"] = {"date": "date", "commit": "commit", "command": "command"}
        words = ("date", "command", "processor", "system", "cpus", "tinygpt", "commit", "rustc")
        return {word: word for word in words} | {
            "python": "3",
            "threads": 2,
            "packages": {"torch": "2"},
            "instruction_sets": ["avx2"],
            "rows": [row],
        }

    def test_the_table_says_both_speeds_the_ratio_and_why_a_setting_was_skipped(self) -> None:
        lines = report.markdown(self.results()).splitlines()
        title = self.row.title
        both = f"| {title} | f32 | 4,096 (291) | PyTorch, f32 | 1,000 (71) "
        self.assertIn(both + "| **4.10** (4.10 to 4.10) |", lines)
        self.assertIn(f"| {title} | PyTorch, f32, compiled | skipped: no compiler | | |", lines)

    def test_rows_measured_before_stay_if_machine_and_packages_are_the_same(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            self.assertEqual(report.kept(self.results(), Path(folder)), {})
            report.write(self.results(), Path(folder))
            now = self.results() | {"date": "later", "rows": []}
            kept = report.kept(now, Path(folder))
            self.assertEqual(list(kept), [self.row.name])
            line = f"- measured date, tinygpt commit, `command`: {self.row.title}"
            self.assertIn(line, report.markdown(now | {"rows": list(kept.values())}))
            self.assertNotIn(line, report.markdown(self.results()))
            for other in ({"threads": 4}, {"packages": {"torch": "3"}}, {"processor": "another"}):
                self.assertEqual(report.kept(now | other, Path(folder)), {})

    def test_a_text_is_tried_whole(self) -> None:
        row = next(row for row in rows.ROWS if row.name == "generate-char")
        asked: list[int] = []
        worker = mock.Mock(block=lambda units: asked.append(units) or [1.0])
        compare.trial(row, worker)
        self.assertEqual(asked, [row.new_tokens])

    def test_a_row_without_any_peer_still_has_a_line(self) -> None:
        results = self.results()
        results["rows"][0] |= {"peers": [self.nobody]}
        line = f"| {self.row.title} | f32 | 4,096 (291) | PyTorch | - | - |"
        self.assertIn(line, report.markdown(results).splitlines())

    @unittest.skipIf(chart is None, "matplotlib is not there")
    def test_the_chart_has_a_bar_for_each_comparison(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "bench.svg"
            chart.draw(self.results(), path)
            self.assertIn("4.10 x   4,096 : 1,000 tokens/s", path.read_text())

    @unittest.skipIf(chart is None, "matplotlib is not there")
    def test_without_any_peer_there_is_nothing_to_draw(self) -> None:
        results = self.results()
        results["rows"][0] |= {"peers": [self.nobody]}
        with tempfile.TemporaryDirectory() as folder, redirect_stdout(StringIO()) as said:
            path = Path(folder) / "bench.svg"
            chart.draw(results, path)
            self.assertFalse(path.exists())
        self.assertEqual(said.getvalue(), "nothing to draw: no peer could be measured\n")
