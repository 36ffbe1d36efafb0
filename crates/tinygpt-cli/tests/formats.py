"""Models of other programs, read and written beside the programs' own libraries.

    python formats.py TINYGPT LOGITS

TINYGPT is the program, LOGITS the example `logits` of the crate tinygpt. Every model has random
weights; what counts is that both sides compute the same logits from them. A check whose library is
not installed is skipped, with the reason.
"""

import importlib
import json
import os
import pickle
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

PROGRAM, LOGITS = sys.argv[1], sys.argv[2]
os.environ["HF_HUB_DISABLE_PROGRESS_BARS"] = "1"
IDS = [3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8]


def needs(*names):
    """Skips a check whose libraries are not there."""

    def decorate(check):
        def run(folder):
            for name in names:
                try:
                    importlib.import_module(name)
                except ImportError as error:
                    print(f"skipped: {check.__name__}: {error}")
                    return
            check(folder)
            print(f"ok: {check.__name__}")

        CHECKS.append(run)
        return check

    return decorate


CHECKS = []


def run(*words, cwd=None):
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True, cwd=cwd)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(map(str, words))}\n{done.stdout}{done.stderr}")
    return done.stdout


def ours(model, ids=IDS):
    import torch

    lines = run(LOGITS, model, *ids).splitlines()
    return torch.tensor([[float(x) for x in line.split()] for line in lines])


def theirs(model, ids=IDS):
    import torch

    with torch.no_grad():
        return model.eval()(torch.tensor([ids])).logits[0].float()


def same(found, expected, tolerance=1e-5):
    assert found.shape == expected.shape, (found.shape, expected.shape)
    error = (found - expected).abs().max() / expected.abs().max().clamp(min=1)
    assert error <= tolerance, f"logits differ by {error:.2e}"


def gpt2(**changes):
    """A small GPT-2 of transformers' with random weights, biases and gains too."""
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(0)
    sizes = dict(vocab_size=256, n_positions=32, n_embd=64, n_layer=2, n_head=2)
    model = GPT2LMHeadModel(GPT2Config(**sizes | dict(bos_token_id=0, eos_token_id=0) | changes))
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, 0.0, 0.1)
    return model.eval()


def trained(folder, *flags):
    """A model that `tinygpt train` made, and its checkpoint's path."""
    text = folder / "text.txt"
    text.write_text("To be, or not to be: that is the question.\n" * 40)
    sizes = "--n-layer 2 --n-head 2 --n-embd 64 --block-size 32 --batch-size 2 --max-iters 4"
    rest = "--eval-iters 1 --sample-tokens 0 --learning-rate 0.01 --warmup-iters 0"
    out = folder / "run"
    run(PROGRAM, "train", text, *sizes.split(), *rest.split(), "--out-dir", out, *flags, cwd=folder)
    return out / "last"


@needs("torch", "transformers", "safetensors")
def every_layout_of_a_folder_is_read(folder):
    from safetensors.torch import load_file, save_file
    import torch

    model = gpt2()
    expected = theirs(model)
    plain = folder / "plain"
    model.save_pretrained(plain)
    same(ours(plain), expected)
    model.save_pretrained(folder / "sharded", max_shard_size="200KB")
    assert (folder / "sharded/model.safetensors.index.json").exists()
    same(ours(folder / "sharded"), expected)
    # As the original files are: no prefix, and the causal mask among the tensors.
    tensors = load_file(plain / "model.safetensors")
    old = {name.removeprefix("transformer."): tensor for name, tensor in tensors.items()}
    for layer in range(2):
        old[f"h.{layer}.attn.bias"] = torch.ones(1, 1, 32, 32, dtype=torch.uint8)
        old[f"h.{layer}.attn.masked_bias"] = torch.tensor(-1e4)
    shutil.copytree(plain, folder / "old")
    save_file(old, folder / "old/model.safetensors")
    same(ours(folder / "old"), expected)
    # The file alone tells its own shape: heads of 64 are assumed.
    one = gpt2(n_head=1)
    one.save_pretrained(folder / "alone")
    shutil.move(folder / "alone/model.safetensors", folder / "alone.safetensors")
    same(ours(folder / "alone.safetensors"), theirs(one))


@needs("torch", "transformers")
def other_numbers_heads_and_activations_are_read(folder):
    import torch

    for dtype in [torch.float16, torch.bfloat16]:
        model = gpt2().to(dtype)
        model.save_pretrained(folder / str(dtype))
        same(ours(folder / str(dtype)), theirs(model.float()))
    for name, changes in {
        "erf": dict(activation_function="gelu"),
        "silu": dict(activation_function="silu"),
        "untied": dict(tie_word_embeddings=False),
    }.items():
        model = gpt2(**changes)
        model.save_pretrained(folder / name)
        same(ours(folder / name), theirs(model))


@needs("torch", "transformers")
def a_model_of_gpt2s_size_is_read_and_written(folder):
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model = gpt2(vocab_size=50257, n_positions=1024, n_embd=768, n_layer=12, n_head=12)
    expected = theirs(model)
    model.save_pretrained(folder / "gpt2")
    del model
    same(ours(folder / "gpt2"), expected)
    run(PROGRAM, "export", folder / "gpt2", "--to", "hf", folder / "out")
    exported = AutoModelForCausalLM.from_pretrained(folder / "out")
    same(theirs(exported), expected)
    # Twenty tokens that are surely the likeliest are the same text.
    tokenizer = AutoTokenizer.from_pretrained(folder / "out")
    ids = tokenizer("Hello world", return_tensors="pt")["input_ids"]
    greedy = exported.generate(ids, max_new_tokens=20, do_sample=False, pad_token_id=0)[0]
    words = ["sample", folder / "gpt2", "-p", "Hello world", "--temperature", 0, "-n"]
    found = run(PROGRAM, *words, 20)
    assert found.rstrip("\n") == tokenizer.decode(greedy).rstrip("\n"), (found, greedy)
    times = []
    for _ in range(3):
        start = time.perf_counter()
        run(PROGRAM, *words, 1)
        times.append(time.perf_counter() - start)
    # A figure to look at; how fast this machine is at the moment is no fault of the program.
    print(f"124M parameters: loaded, and a token written, in {min(times):.2f} s")


@needs("torch", "transformers", "tokenizers")
def transformers_opens_what_is_exported(folder):
    from transformers import AutoModelForCausalLM, AutoTokenizer

    text = "to be, or not to be\n"
    chars = sorted(set("To be, or not to be: that is the question.\n"))
    for flags, ids in [
        ([], [chars.index(c) for c in text]),
        (["--tokenizer", "byte", "--bias=false"], list(text.encode())),
        (["--tokenizer", "gpt2", "--activation", "silu", "--tied=false"], None),
    ]:
        work = Path(tempfile.mkdtemp(dir=folder))
        run_folder = trained(work, *flags)
        run(PROGRAM, "export", run_folder, "--to", "hf", work / "hf")
        tokenizer = AutoTokenizer.from_pretrained(work / "hf")
        if ids is None:
            assert tokenizer("abc abc")["input_ids"] == [39305, 450, 66]
            text, ids = "Hello world, naïve", [15496, 995, 11, 41492]
        assert tokenizer(text)["input_ids"] == ids, (tokenizer(text)["input_ids"], ids)
        assert tokenizer.decode(ids) == text
        model = AutoModelForCausalLM.from_pretrained(work / "hf")
        same(theirs(model, ids), ours(run_folder, ids))
        same(ours(work / "hf", ids), ours(run_folder, ids))


def as_gpt2(checkpoint):
    """transformers' GPT-2 with the weights of a nanoGPT checkpoint."""
    import torch

    args = checkpoint["model_args"]
    shape = {key: args[key] for key in ["vocab_size", "n_layer", "n_head", "n_embd"]}
    model = gpt2(**shape, n_positions=args["block_size"], activation_function="gelu")
    turned = ("c_attn.weight", "c_proj.weight", "c_fc.weight")
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            tensor = checkpoint["model"].get(name)
            tensor = torch.zeros_like(parameter) if tensor is None else tensor
            parameter.copy_(tensor.t() if name.endswith(turned) else tensor)
    return model


def named_in_order(checkpoint):
    """The parameters as nanoGPT's optimizer numbers them: matrices first."""
    model = {name: t for name, t in checkpoint["model"].items() if name != "lm_head.weight"}
    parameters = {name: tensor.clone().requires_grad_() for name, tensor in model.items()}
    groups = [[n for n in model if model[n].dim() >= 2], [n for n in model if model[n].dim() < 2]]
    return parameters, groups


@needs("torch", "transformers")
def pytorch_loads_an_exported_checkpoint_and_its_optimizer(folder):
    import torch

    for flags in [[], ["--bias=true"]]:
        work = Path(tempfile.mkdtemp(dir=folder))
        run_folder = trained(work, *flags)
        run(PROGRAM, "export", run_folder, "--to", "nanogpt", work / "out")
        checkpoint = torch.load(work / "out/ckpt.pt", weights_only=True)
        assert checkpoint["iter_num"] == 4 and checkpoint["best_val_loss"] > 0
        assert checkpoint["model_args"]["bias"] == bool(flags)
        tied = [checkpoint["model"][n] for n in ("lm_head.weight", "transformer.wte.weight")]
        assert tied[0].data_ptr() == tied[1].data_ptr()
        same(theirs(as_gpt2(checkpoint)), ours(run_folder))
        parameters, groups = named_in_order(checkpoint)
        group = lambda names: {"params": [parameters[name] for name in names]}
        optimizer = torch.optim.AdamW([group(names) for names in groups], lr=1.0)
        optimizer.load_state_dict(checkpoint["optimizer"])
        assert optimizer.param_groups[0]["lr"] == 0.01
        for parameter in parameters.values():
            parameter.grad = torch.ones_like(parameter)
        optimizer.step()
        state = optimizer.state[parameters["transformer.wte.weight"]]
        assert state["step"] == 5 and state["exp_avg"].abs().sum() > 0
        meta = pickle.loads((work / "out/meta.pkl").read_bytes())
        assert meta["itos"][meta["stoi"]["T"]] == "T" and meta["vocab_size"] == len(meta["itos"])


@needs("torch", "transformers")
def a_checkpoint_that_pytorch_saved_is_read_and_trained_on(folder):
    import torch

    run_folder = trained(folder)
    run(PROGRAM, "export", run_folder, "--to", "nanogpt", folder / "first")
    checkpoint = torch.load(folder / "first/ckpt.pt", weights_only=True)
    parameters, groups = named_in_order(checkpoint)
    group = lambda names: {"params": [parameters[name] for name in names]}
    optimizer = torch.optim.AdamW([group(names) for names in groups], lr=0.01, betas=(0.9, 0.99))
    optimizer.load_state_dict(checkpoint["optimizer"])
    # As nanoGPT has it after torch.compile, with its loss in a tensor.
    model = {f"_orig_mod.{name}": tensor for name, tensor in checkpoint["model"].items()}
    checkpoint |= dict(model=model, optimizer=optimizer.state_dict(), iter_num=7)
    checkpoint["best_val_loss"] = torch.tensor(1.5)
    out = folder / "out"
    out.mkdir()
    torch.save(checkpoint, out / "ckpt.pt")
    meta = pickle.loads((folder / "first/meta.pkl").read_bytes())
    (out / "meta.pkl").write_bytes(pickle.dumps(meta))
    same(ours(out), ours(run_folder))
    flags = "--max-iters 9 --eval-interval 1 --log-interval 1"
    text = run(PROGRAM, "train", "text.txt", "--resume", out, *flags.split(), cwd=folder)
    assert "step 7:" in text and "iter 7:" in text and "step 9:" in text, text
    # What goes on is what was saved: the moments of the two agree after the same steps.
    run(PROGRAM, "export", folder / "runs/nanogpt/last", "--to", "nanogpt", folder / "again")
    again = torch.load(folder / "again/ckpt.pt", weights_only=True)
    assert again["iter_num"] == 9
    # A pickle that would run something is refused, and does not run.
    class Evil:
        def __reduce__(self):
            return (Path.touch, (folder / "proof",))

    torch.save({"model": Evil()}, folder / "evil.pt")
    done = subprocess.run([PROGRAM, "info", folder / "evil.pt"], capture_output=True, text=True)
    assert done.returncode == 1 and "which no checkpoint needs" in done.stderr, done.stderr
    assert not (folder / "proof").exists()


@needs("torch", "transformers", "gguf", "accelerate")
def ggufs_library_reads_what_is_exported(folder):
    from transformers import GPT2LMHeadModel

    flags = ["--tokenizer", "byte", "--activation", "gelu_tanh"]
    run_folder = trained(folder, *flags)
    # transformers asks for the context, which it does not take from the file.
    for dtype, tolerance in [("f32", 1e-5), ("f16", 1e-2), ("bf16", 1e-1), ("q8_0", 1e-1)]:
        name = f"{dtype}.gguf"
        run(PROGRAM, "export", run_folder, "--to", "gguf", folder / name, "--dtype", dtype)
        model = GPT2LMHeadModel.from_pretrained(folder, gguf_file=name, n_positions=32)
        same(theirs(model), ours(folder / name))
        same(ours(folder / name), ours(run_folder), tolerance)


@needs("torch", "gguf", "transformers")
def a_file_of_ggufs_library_is_read(folder):
    import gguf
    import numpy
    import torch

    model = gpt2()
    names = {"wte": "token_embd", "wpe": "position_embd", "ln_f": "output_norm"}
    parts = {
        "ln_1": "attn_norm", "attn.c_attn": "attn_qkv", "attn.c_proj": "attn_output",
        "ln_2": "ffn_norm", "mlp.c_fc": "ffn_up", "mlp.c_proj": "ffn_down",
    }
    for kind in ["F32", "F16", "BF16", "Q8_0"]:
        kind = gguf.GGMLQuantizationType[kind]
        writer = gguf.GGUFWriter(folder / "m.gguf", "gpt2")
        writer.add_context_length(32)
        writer.add_embedding_length(64)
        writer.add_feed_forward_length(256)
        writer.add_block_count(2)
        writer.add_head_count(2)
        writer.add_layer_norm_eps(1e-5)
        rounded = gpt2()
        for name, parameter in rounded.named_parameters():
            stem, end = name.removeprefix("transformer.").rsplit(".", 1)
            if stem.startswith("h."):
                _, layer, part = stem.split(".", 2)
                stem = f"blk.{layer}.{parts[part]}"
            else:
                stem = names[stem]
            turned = parameter.dim() == 2 and stem not in names.values()
            tensor = (parameter.t() if turned else parameter).detach().contiguous().numpy()
            if tensor.ndim < 2 or stem == "position_embd":
                writer.add_tensor(f"{stem}.{end}", tensor)
                continue
            packed = gguf.quants.quantize(tensor, kind)
            writer.add_tensor(f"{stem}.{end}", packed, raw_dtype=kind)
            back = torch.from_numpy(numpy.array(gguf.quants.dequantize(packed, kind)))
            with torch.no_grad():
                parameter.copy_(back.t() if turned else back)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        same(ours(folder / "m.gguf"), theirs(rounded))


@needs("torch", "safetensors")
def safetensors_library_reads_what_is_exported(folder):
    from safetensors import safe_open
    from safetensors.torch import load_file

    run_folder = trained(folder)
    run(PROGRAM, "export", run_folder, "--to", "safetensors", folder / "m.safetensors")
    tensors = load_file(folder / "m.safetensors")
    assert tensors["transformer.h.0.attn.c_attn.weight"].shape == (192, 64)
    with safe_open(folder / "m.safetensors", "pt") as file:
        assert json.loads(file.metadata()["config"])["n_head"] == 2
    same(ours(folder / "m.safetensors"), ours(run_folder))


with tempfile.TemporaryDirectory() as scratch:
    for number, check in enumerate(CHECKS):
        folder = Path(scratch, str(number))
        folder.mkdir()
        check(folder)
