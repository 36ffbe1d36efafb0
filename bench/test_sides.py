"""The two sides: what is read from TinyGPT and from a peer, and that they are the same model."""

import dataclasses
import json
import os
import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock

import peers
import program
import rows
from measure import PeerError
from peers import Worker

try:
    import torch
    from safetensors import safe_open

    import tiny_gpt
except ImportError:
    torch = None

TINYGPT = sys.argv[1] if len(sys.argv) > 1 else os.environ.get("TINYGPT", "")
GOLDEN = program.ROOT / "crates" / "tinygpt" / "tests" / "golden"


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
