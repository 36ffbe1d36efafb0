//! nanoGPT's checkpoints: prefixes, the optimizer, the data set's characters; and what pretends to
//! be one.

use super::*;
use crate::formats::pickle::{Pickle, Value};
use std::io::Write;
use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, ZipWriter};

/// An archive of torch.save's with that pickle, without storages.
fn archive(path: &Path, pickle: &[u8]) {
    let mut zip = ZipWriter::new(fs::File::create(path).unwrap());
    let stored = SimpleFileOptions::default().compression_method(CompressionMethod::Stored);
    zip.start_file("ckpt/data.pkl", stored).unwrap();
    zip.write_all(pickle).unwrap();
    zip.finish().unwrap();
}

pub(super) fn progress(step: u64) -> Progress {
    let train = TrainConfig { max_iters: 50, learning_rate: 0.003, ..Default::default() };
    Progress {
        step,
        best_val_loss: Some(1.25),
        stale_evals: 0,
        last_eval: None,
        tokens: 0,
        elapsed_s: 0.0,
        source: "a text".into(),
        train_tokens: 100,
        train,
        data: DataOptions::default(),
    }
}

fn exported(config: &GptConfig, to: &Path, tokenizer: Option<&Tokenizer>) {
    let ([p, m], v) = ([1, 2].map(|seed| params(config, seed)), squares(config, 3));
    let progress = progress(17);
    let state = Some(StateRef { progress: &progress, exp_avg: &m, exp_avg_sq: &v });
    let export = Export { name: "tiny", config, params: &p, tokenizer, state, kept: Kept::F32 };
    export.write(Format::NanoGpt, to, false).unwrap();
}

#[test]
fn a_flipped_bit_anywhere_in_a_checkpoint_is_noticed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.pt");
    let config = tiny(Format::NanoGpt);
    exported(&config, &path, None);
    let whole = fs::read(&path).unwrap();
    let needle = params(&config, 1).iter().next().unwrap().1[1].to_le_bytes();
    let at = whole.windows(4).position(|bytes| bytes == needle).unwrap();
    let mut damaged = whole.clone();
    damaged[at] ^= 1;
    fs::write(&path, damaged).unwrap();
    let error = message(&path);
    assert!(error.contains("of its archive is damaged"), "{error}");
}

#[test]
fn a_checkpoint_of_nanogpts_comes_back_with_its_optimizer_and_its_characters() {
    let parent = tempfile::tempdir().unwrap();
    for bias in [true, false] {
        let folder = parent.path().join(format!("out-{bias}"));
        let config = GptConfig { bias, dropout: 0.25, ..tiny(Format::NanoGpt) };
        let tokenizer = Tokenizer::from_chars("héllo \n".chars());
        assert_eq!(tokenizer.vocab_size(), 6);
        exported(&config, &folder, Some(&tokenizer));
        for path in [folder.clone(), folder.join("ckpt.pt")] {
            let model = Model::open(&path).unwrap();
            assert_eq!((model.format, &model.config), (Format::NanoGpt, &config));
            assert_eq!(model.tokenizer().unwrap().unwrap(), tokenizer);
            let read = model.read().unwrap();
            assert_eq!(tensors(&read), tensors(&params(&config, 1)));
            let on = model.goes_on(&read).unwrap();
            assert_eq!((on.step, on.best_val_loss), (17, Some(1.25)));
            assert_eq!(tensors(&on.exp_avg), tensors(&params(&config, 2)));
            assert_eq!(tensors(&on.exp_avg_sq), tensors(&squares(&config, 3)));
            let setting = |key: &str| {
                model.settings().iter().find(|(k, _)| k == key).map(|(_, value)| value.as_str())
            };
            assert_eq!(setting("max_iters"), Some("50"));
            assert_eq!(setting("learning_rate"), Some("0.003"));
            assert_eq!(setting("decay_lr"), Some("true"));
        }
    }
}

#[test]
fn weights_alone_start_a_run_and_going_on_with_them_says_what_is_missing() {
    let parent = tempfile::tempdir().unwrap();
    let path = parent.path().join("ckpt.pt");
    let config = tiny(Format::NanoGpt);
    let p = params(&config, 1);
    let export = Export {
        name: "",
        config: &config,
        params: &p,
        tokenizer: None,
        state: None,
        kept: Kept::Bf16,
    };
    export.write(Format::NanoGpt, &path, false).unwrap();
    let model = Model::open(&path).unwrap();
    let read = model.read().unwrap();
    assert!(!model.has_state() && model.iterations() == Some(0));
    let error = model.goes_on(&read).unwrap_err();
    assert!(error.to_string().contains("weights only"), "{error}");
    assert!(error.hint().unwrap().contains("--init-from"));
}

/// A checkpoint of `config`'s weights, `wte` of which has `rows`, with what `beside` writes: pairs of
/// a key and its value, and the moments of each parameter.
fn unusual(
    path: &Path,
    config: &GptConfig,
    rows: usize,
    beside: impl FnOnce(&mut pickle::Pickler),
) {
    let mut p = pickle::Pickler::new();
    let weights = params(config, 1);
    let mut storages = Vec::new();
    p.dict(|p| {
        p.text("model_args");
        p.dict(|p| {
            let GptConfig { vocab_size, block_size, n_layer, n_head, n_embd, .. } = *config;
            for (key, value) in [
                ("vocab_size", vocab_size),
                ("block_size", block_size),
                ("n_layer", n_layer),
                ("n_head", n_head),
                ("n_embd", n_embd),
            ] {
                p.text(key);
                p.int(value as u64);
            }
        });
        p.text("model");
        p.dict(|p| {
            for (key, (spec, values)) in weights.iter().enumerate() {
                let mut shape = spec.shape.clone();
                if spec.name.ends_with("wte.weight") {
                    shape[0] = rows;
                }
                p.text(&spec.name);
                p.tensor("Float", key, &shape);
                let bytes: Vec<u8> = values.iter().flat_map(|x| x.to_le_bytes()).collect();
                storages.push(bytes);
            }
        });
        beside(p);
    });
    let mut zip = ZipWriter::new(fs::File::create(path).unwrap());
    let stored = SimpleFileOptions::default().compression_method(CompressionMethod::Stored);
    zip.start_file("ckpt/data.pkl", stored).unwrap();
    zip.write_all(&p.finish()).unwrap();
    for (key, bytes) in storages.iter().enumerate() {
        zip.start_file(format!("ckpt/data/{key}"), stored).unwrap();
        zip.write_all(bytes).unwrap();
    }
    zip.finish().unwrap();
}

/// An optimizer that keeps `moment` of parameter 0, the first tensor.
fn optimizer(p: &mut pickle::Pickler, config: &GptConfig, moment: &str) {
    p.text("optimizer");
    p.dict(|p| {
        p.text("state");
        p.dict(|p| {
            p.int(0);
            p.dict(|p| {
                p.text(moment);
                p.tensor("Float", 0, &[config.vocab_size, config.n_embd]);
            });
        });
    });
}

#[test]
fn weights_are_read_whatever_optimizer_is_beside_them_and_only_going_on_says_what_it_lacks() {
    let parent = tempfile::tempdir().unwrap();
    let path = parent.path().join("ckpt.pt");
    let config = tiny(Format::NanoGpt);
    for (moment, part) in [
        ("momentum_buffer", "has no exp_avg of parameter 0, transformer.wte.weight"),
        ("exp_avg", "has no exp_avg_sq of parameter 0, transformer.wte.weight"),
    ] {
        unusual(&path, &config, config.vocab_size, |p| {
            p.text("iter_num");
            p.int(3);
            optimizer(p, &config, moment);
        });
        let model = Model::open(&path).unwrap();
        let read = model.read().unwrap();
        assert_eq!(tensors(&read), tensors(&params(&config, 1)));
        assert!(model.has_state() && model.iterations() == Some(3));
        let error = model.goes_on(&read).unwrap_err();
        assert!(error.to_string().contains(part), "{error}");
        assert!(error.hint().unwrap().contains("--init-from"));
        // What is wrong with the weights is said first.
        unusual(&path, &config, 1, |p| optimizer(p, &config, moment));
        let said = message(&path);
        assert!(said.contains("transformer.wte.weight: expected (7, 6), found (1, 6)"), "{said}");
    }
}

#[test]
fn a_number_of_steps_that_is_none_is_refused_where_a_training_goes_on() {
    let parent = tempfile::tempdir().unwrap();
    let path = parent.path().join("ckpt.pt");
    let config = tiny(Format::NanoGpt);
    for (found, part) in [
        (Some(&b"J\xfc\xff\xff\xff"[..]), "has -4 for iter_num"),
        (Some(b"G\x3f\xf8\0\0\0\0\0\0"), "has 1.5 for iter_num"),
        (Some(b"N"), "has None for iter_num"),
        (None, "has nothing for iter_num"),
    ] {
        unusual(&path, &config, config.vocab_size, |p| {
            if let Some(found) = found {
                p.text("iter_num");
                p.raw(found);
            }
            optimizer(p, &config, "exp_avg");
        });
        let model = Model::open(&path).unwrap();
        let read = model.read().unwrap();
        assert_eq!(model.iterations(), None);
        let error = model.goes_on(&read).unwrap_err();
        assert!(error.to_string().contains(part), "{error}");
    }
}

#[test]
fn a_mean_of_squares_below_zero_is_refused_and_trains_nothing_to_nan() {
    let parent = tempfile::tempdir().unwrap();
    let path = parent.path().join("ckpt.pt");
    let config = tiny(Format::NanoGpt);
    let ([p, m], mut v) = ([1, 2].map(|seed| params(&config, seed)), squares(&config, 3));
    v.data_mut()[1] = -0.5;
    let progress = progress(17);
    let state = Some(StateRef { progress: &progress, exp_avg: &m, exp_avg_sq: &v });
    let (tokenizer, kept) = (None, Kept::F32);
    let export = Export { name: "tiny", config: &config, params: &p, tokenizer, state, kept };
    export.write(Format::NanoGpt, &path, false).unwrap();
    let model = Model::open(&path).unwrap();
    let error = model.goes_on(&model.read().unwrap()).unwrap_err().to_string();
    assert!(error.contains("exp_avg_sq.transformer.wte.weight[1] is -0.5"), "{error}");
    let folder = parent.path().join("last");
    checkpoint::save(&folder, &config, &p, None, state).unwrap();
    let error = checkpoint::TrainState::load(&folder, &p).unwrap_err().to_string();
    assert!(error.contains("exp_avg_sq.transformer.wte.weight[1] is -0.5"), "{error}");
}

#[test]
fn a_folder_of_nanogpts_is_named_for_its_tokenizer() {
    let parent = tempfile::tempdir().unwrap();
    let config = tiny(Format::NanoGpt);
    let tokenizer = Tokenizer::from_chars("héllo \nx".chars());
    let folder = parent.path().join("out");
    exported(&config, &folder, Some(&tokenizer));
    assert_eq!(tokenizer_at(&folder).unwrap(), tokenizer);
    let kind = TokenizerKind::File(folder.clone());
    let options = DataOptions { tokenizer: kind, ..DataOptions::default() };
    assert_eq!(with_vocabulary(options).unwrap().vocabulary, Some(tokenizer));
    fs::remove_file(folder.join("meta.pkl")).unwrap();
    let error = tokenizer_at(&folder).unwrap_err().to_string();
    assert!(error.contains("is a model without a tokenizer"), "{error}");
}

#[test]
fn names_that_run_something_are_refused_by_name_and_run_nothing() {
    let parent = tempfile::tempdir().unwrap();
    let (path, proof) = (parent.path().join("ckpt.pt"), parent.path().join("proof"));
    let command = format!("touch {}", proof.display());
    let text =
        |text: &str| [&b"X"[..], &(text.len() as u32).to_le_bytes(), text.as_bytes()].concat();
    for (module, name) in [
        ("os", "system"),
        ("posix", "system"),
        ("builtins", "eval"),
        ("__builtin__", "eval"),
        ("builtins", "getattr"),
        ("torch", "load"),
        ("torch.storage", "_load_from_bytes"),
        ("collections", "OrderedDict.fromkeys"),
    ] {
        let global = format!("c{module}\n{name}\n").into_bytes();
        let by_stack = [text(module), text(name), b"\x93".to_vec()].concat();
        for named in [global, by_stack] {
            let call = [&b"\x80\x04"[..], &named, &text(&command), b"\x85R."].concat();
            archive(&path, &call);
            let said = message(&path);
            assert!(said.contains(&format!("asks for {module}.{name}, which no")), "{said}");
            assert!(!proof.exists());
        }
    }
    // No other opcode makes a name or calls one: INST, OBJ, NEWOBJ, NEWOBJ_EX, EXT1, REDUCE.
    for opcode in [b"i".as_slice(), b"o", b"\x81", b"\x92", b"\x82\x01"] {
        archive(&path, &[b"\x80\x04(", opcode, b"."].concat());
        assert!(message(&path).contains("has the opcode"), "{}", message(&path));
    }
    archive(&path, b"\x80\x02]\x85)R.");
    assert!(message(&path).contains("calls a list"), "{}", message(&path));
}

#[test]
fn archives_that_are_no_checkpoint_say_what_they_are() {
    let parent = tempfile::tempdir().unwrap();
    let path = parent.path().join("pytorch_model.bin");
    let mut weights = pickle::Pickler::new();
    weights.dict(|p| {
        p.text("transformer.wte.weight");
        p.tensor("Float", 0, &[2, 3]);
    });
    archive(&path, &weights.finish());
    let said = message(&path);
    assert!(said.contains("pytorch_model.bin") && said.contains("save_pretrained"), "{said}");
    archive(&path, b"\x80\x02}.");
    assert!(message(&path).contains("no model_args"), "{}", message(&path));
    archive(&path, b"\x80\x02");
    assert!(message(&path).contains("ends too soon"), "{}", message(&path));
    let mut zip = ZipWriter::new(fs::File::create(&path).unwrap());
    zip.start_file("word/document.xml", SimpleFileOptions::default()).unwrap();
    zip.finish().unwrap();
    assert!(message(&path).contains("without data.pkl"), "{}", message(&path));
    fs::write(&path, b"PK\x03\x04 not really").unwrap();
    assert!(message(&path).contains("damaged or cut short"), "{}", message(&path));
    fs::write(&path, b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19.").unwrap();
    assert!(message(&path).contains("Python pickle"), "{}", message(&path));
}

#[test]
fn values_share_and_go_in_circles_without_being_copied() {
    // a = []; a.append(a); twenty lists of two times the one before: 2^20 if it were expanded.
    let mut bytes = b"\x80\x02]q\x00h\x00a0".to_vec();
    bytes.truncate(bytes.len() - 1);
    for i in 1..=20u8 {
        bytes.extend([b'h', i - 1, b'h', i - 1, 0x86, b'q', i]);
    }
    bytes.push(b'.');
    let pickle = Pickle::read(&bytes).unwrap();
    assert!(matches!(pickle.root(), Value::Tuple(two) if two.len() == 2 && two[0] == two[1]));
}

#[test]
fn numbers_of_every_length_are_read() {
    for (bytes, value) in [
        (&b"K\xFF"[..], 255),
        (b"M\xFF\xFF", 65535),
        (b"J\xFF\xFF\xFF\xFF", -1),
        (b"\x8a\x00", 0),
        (b"\x8a\x01\xFF", -1),
        (b"\x8a\x02\xFF\x00", 255),
        (b"\x8a\x08\0\0\0\0\0\0\0\x80", i64::MIN),
    ] {
        let pickle = Pickle::read(&[b"\x80\x02", bytes, b"."].concat()).unwrap();
        assert_eq!(pickle.root(), &Value::Int(value));
    }
    let mut writer = pickle::Pickler::new();
    writer.int(u64::from(u32::MAX));
    let pickle = Pickle::read(&writer.finish()).unwrap();
    assert_eq!(pickle.root(), &Value::Int(u32::MAX.into()));
    let long = b"\x80\x02\x8a\x09\0\0\0\0\0\0\0\0\x01.";
    assert!(Pickle::read(long).unwrap_err().contains("9 bytes"));
}

#[test]
fn a_meta_pickle_of_characters_is_a_tokenizer_and_others_are_refused() {
    let parent = tempfile::tempdir().unwrap();
    let path = parent.path().join("meta.pkl");
    // What Python 3 writes by default: frames, short texts, a memo by position.
    let python =
        b"\x80\x04\x95\x24\0\0\0\0\0\0\0}\x94\x8c\x04itos\x94}\x94(K\x00\x8c\x01\n\x94K\x01\
                   \x8c\x02\xc3\xa9\x94us.";
    fs::write(&path, python).unwrap();
    let tokenizer = nanogpt::read_meta(&path).unwrap();
    assert_eq!(tokenizer, Tokenizer::from_chars("\né".chars()));
    for (bytes, part) in [
        (&b"\x80\x02}."[..], "has no `itos`"),
        (b"\x80\x02}X\x04\0\0\0itos}K\x00X\x02\0\0\0abss.", "no list of characters"),
        (b"\x80\x02}X\x04\0\0\0itos}K\x05X\x01\0\0\0ass.", "no list of characters"),
        (b"\x80\x02}X\x04\0\0\0itos}(K\x00X\x01\0\0\0aK\x01X\x01\0\0\0aus.", "twice"),
        (b"\x80\x02cos\nsystem\n.", "asks for os.system"),
    ] {
        fs::write(&path, bytes).unwrap();
        let error = nanogpt::read_meta(&path).unwrap_err().to_string();
        assert!(error.contains(part), "{part}: {error}");
    }
}
