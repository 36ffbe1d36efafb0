"""Checks of the comparison itself, on made-up numbers, and of the peer, on TinyGPT's golden values.

`python bench/compare.py --self-test [TINYGPT]`. What needs packages that are not there is skipped,
and so is what needs a tinygpt, unless one is named there or in the variable TINYGPT.
"""

import dataclasses
import json
import os
import sys
import tempfile
import unittest
from contextlib import ExitStack, redirect_stdout
from io import StringIO
from pathlib import Path
from unittest import mock

import compare
import peers
import program
import report
import rows
from measure import Block, Pair, PeerError, Race, Runner, in_turn, ratio, unit_ms, units_in
from peers import Candidate, Worker

try:
    import torch
    from safetensors import safe_open

    import tiny_gpt
except ImportError:
    torch = None
try:
    import chart
except ImportError:
    chart = None

TINYGPT = sys.argv[1] if len(sys.argv) > 1 else os.environ.get("TINYGPT", "")
GOLDEN = program.ROOT / "crates" / "tinygpt" / "tests" / "golden"


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


@unittest.skipIf(sys.platform == "win32", "the made-up programs are scripts")
class Programs(unittest.TestCase):
    """What is read from TinyGPT and from a peer."""

    row = next(row for row in rows.ROWS if row.name == "cpu")

    def script(self, folder: str, text: str) -> Path:
        path = Path(folder) / "program"
        path.write_text(f"#!{sys.executable}\n{text}")
        path.chmod(0o700)
        return path

    def test_steps_are_read_from_the_log_and_the_first_two_do_not_count(self) -> None:
        line = "iter {i}: loss 3.24, time {i}5.25ms, 1,514 tok/s, lr 1.98e-5, grad norm 3.59"
        text = (
            "print('processor   2 threads, avx2, f32')\n"
            f"for i in range(9): print('{line}'.replace('{{i}}', str(i)))"
        )
        with tempfile.TemporaryDirectory() as folder:
            tinygpt = program.Program(self.script(folder, text), 2, Path(folder))
            self.assertEqual(tinygpt.block(self.row, "f32", 3), [25.25, 35.25, 45.25])
        self.assertEqual(tinygpt.computes_with, "2 threads, avx2")
        self.assertEqual(tinygpt.runs_as(self.row, "f32"), "f32")
        self.assertIn("--threads=2", tinygpt.commands["cpu", "f32"])

    def test_a_program_that_fails_says_why(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            path = self.script(folder, "import sys; sys.exit('error: no such key')")
            tinygpt = program.Program(path, 2, Path(folder))
            with self.assertRaisesRegex(program.ProgramError, "no such key"):
                tinygpt.block(self.row, "f32", 3)

    def test_a_peer_that_ends_is_a_reason_to_skip_it(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            said = "'a warning\\nno such device\\n'"
            text = f"import sys; print({said}, file=sys.stderr); sys.exit(3)"
            with self.worker(str(self.script(folder, text))) as worker:
                for ask in (worker.start, lambda: worker.block(1)):
                    with self.assertRaisesRegex(PeerError, "^ended with code 3.*: no such device$"):
                        ask()

    def worker(self, python: str) -> Worker:
        return Worker(python, self.row, rows.PYTORCH, rows.PYTORCH.settings[0], 2)

    def test_each_early_end_of_a_peer_reads_differently(self) -> None:
        killed = "import os; os.kill(os.getpid(), 9)"
        for text, patience, reason in (
            (killed, 60, "killed from outside"),
            ("import time; time.sleep(60)", 0.3, "no answer within 0.3 s"),
            ("print('half a li', end='')", 60, "answered 'half a li'"),
        ):
            patient = mock.patch.object(peers, "LONGEST_S", patience)
            with tempfile.TemporaryDirectory() as folder, patient:
                with self.worker(str(self.script(folder, text))) as worker:
                    with self.assertRaisesRegex(PeerError, reason):
                        worker.start()

    def test_a_pytorch_that_does_not_load_is_a_reason_to_skip_its_settings(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "torch.py").write_text("raise OSError('libtorch: not found')")
            with mock.patch.dict(os.environ, PYTHONPATH=folder), self.worker(sys.executable) as w:
                with self.assertRaisesRegex(PeerError, "^OSError: libtorch: not found$"):
                    w.start()


@unittest.skipIf(not TINYGPT, "no tinygpt was named, after --self-test or in the variable TINYGPT")
class TheRealProgram(unittest.TestCase):
    """The program knows every flag that it is told."""

    shape = rows.Shape(65, 8, 1, 1, 16, bias=False)

    def test_it_trains_and_says_in_what(self) -> None:
        row = rows.Row("tiny", "tiny", self.shape, (), batch_size=2)
        with tempfile.TemporaryDirectory() as folder:
            tinygpt = program.Program(Path(TINYGPT).resolve(), 1, Path(folder))
            self.assertEqual(len(tinygpt.block(row, "f32", 3)), 3)
        self.assertEqual(tinygpt.runs_as(row, "f32"), "f32")
        self.assertRegex(tinygpt.computes_with, "^1 thread, ")

    def test_it_writes_a_text_in_every_format(self) -> None:
        row = rows.Row("tiny", "tiny", self.shape, (), new_tokens=2)
        with tempfile.TemporaryDirectory() as folder:
            tinygpt = program.Program(Path(TINYGPT).resolve(), 1, Path(folder))
            for weights in program.formats(row, "f32"):
                self.assertGreater(tinygpt.writing_s(row, weights, 2), 0)
                self.assertIn(program.WEIGHTS[weights], tinygpt.commands["tiny", weights])


@unittest.skipIf(torch is None, "torch or safetensors is not there")
class TheSameModel(unittest.TestCase):
    """The peer does the work that TinyGPT does."""

    def golden(self, name: str) -> tuple["tiny_gpt.GptConfig", dict]:
        with safe_open(str(GOLDEN / f"{name}.safetensors"), "pt") as file:
            config = tiny_gpt.GptConfig(**json.loads(file.metadata()["config"]))
            return config, {key: file.get_tensor(key) for key in file.keys()}

    def test_logits_loss_and_every_gradient_are_the_golden_ones(self) -> None:
        for name in ("tiny_bias", "tiny_nobias"):
            for sdpa in (True, False):
                config, golden = self.golden(name)
                model = tiny_gpt.Gpt(dataclasses.replace(config, sdpa=sdpa))
                with torch.no_grad():
                    for key, parameter in model.named_parameters():
                        parameter.copy_(golden[f"param.{key}"])
                logits, loss = model(golden["idx"], golden["targets"])
                loss.backward()
                torch.testing.assert_close(logits, golden["logits"], rtol=1e-4, atol=1e-5)
                torch.testing.assert_close(loss, golden["loss"].view(()), rtol=1e-5, atol=1e-6)
                for key, parameter in model.named_parameters():
                    found = parameter.grad
                    torch.testing.assert_close(found, golden[f"grad.{key}"], rtol=1e-3, atol=1e-6)

    def test_a_text_has_the_tokens_asked_for_and_outgrows_the_context(self) -> None:
        config, _ = self.golden("tiny_bias")
        start = torch.zeros(1, 1, dtype=torch.long)
        written = tiny_gpt.Gpt(config).eval().generate(start, 3 * config.block_size)
        self.assertEqual(written.shape, (1, 1 + 3 * config.block_size))

    def test_first_weights_are_gpt2s(self) -> None:
        torch.manual_seed(1)
        config = tiny_gpt.GptConfig(50, 8, 8, 4, 128)
        named = dict(tiny_gpt.Gpt(config).named_parameters())
        for key, std in (("attn.c_attn", 0.02), ("attn.c_proj", 0.005), ("mlp.c_proj", 0.005)):
            found = named[f"transformer.h.3.{key}.weight"].std().item()
            self.assertAlmostEqual(found / std, 1, delta=0.05)

    def test_the_count_of_parameters_is_the_models(self) -> None:
        for bias in (True, False):
            shape = rows.Shape(13, 9, 2, 3, 21, bias)
            model = tiny_gpt.Gpt(tiny_gpt.GptConfig(**dataclasses.asdict(shape)))
            total = sum(parameter.numel() for parameter in model.parameters())
            self.assertEqual(total, shape.parameters() + 9 * 21)


def main() -> None:
    """Runs the checks, and says what was skipped and why."""
    result = unittest.main(argv=sys.argv[:1], exit=False).result
    for reason in sorted({reason for _, reason in result.skipped}):
        print(f"skipped: {reason}")
    raise SystemExit(not result.wasSuccessful())


if __name__ == "__main__":
    main()
