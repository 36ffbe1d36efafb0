//! Files that are cut, changed or something else: each is told, and none is trusted.

use super::*;
use proptest::prelude::*;
use std::sync::OnceLock;

/// The files of a model's folder.
type Files = Vec<(String, Vec<u8>)>;

/// A model in every format; made once.
fn valid() -> &'static [(Format, Files)] {
    static VALID: OnceLock<Vec<(Format, Files)>> = OnceLock::new();
    VALID.get_or_init(|| {
        let kinds = [Format::HuggingFace, Format::Safetensors, Format::NanoGpt, Format::Gguf];
        kinds.map(|format| (format, files_of(format))).into()
    })
}

fn files_of(format: Format) -> Files {
    let parent = tempfile::tempdir().unwrap();
    let (config, to) = (tiny(format), parent.path().join("out"));
    let ([p, m], v) = ([1, 2].map(|seed| params(&config, seed)), squares(&config, 3));
    let progress = archive::progress(3);
    let chars = Tokenizer::from_chars("abc\n".chars());
    let export = Export {
        name: "tiny",
        config: &config,
        params: &p,
        tokenizer: (format != Format::Gguf).then_some(&chars),
        state: Some(StateRef { progress: &progress, exp_avg: &m, exp_avg_sq: &v }),
        kept: Kept::F32,
    };
    export.write(format, &to, false).unwrap();
    if to.is_file() {
        return vec![("model".into(), fs::read(&to).unwrap())];
    }
    let files = fs::read_dir(&to).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<_> = files
        .map(|path| {
            (path.file_name().unwrap().to_str().unwrap().to_owned(), fs::read(&path).unwrap())
        })
        .collect();
    files.sort();
    files
}

/// The files of a model in a folder of their own, which of them `change` may change; and what to
/// open.
fn laid_out(
    which: usize,
    change: impl FnOnce(&mut Vec<(String, Vec<u8>)>),
) -> (tempfile::TempDir, PathBuf) {
    let (_, files) = &valid()[which];
    let (parent, mut files) = (tempfile::tempdir().unwrap(), files.clone());
    change(&mut files);
    for (name, bytes) in &files {
        fs::write(parent.path().join(name), bytes).unwrap();
    }
    let file = parent.path().join("model");
    let path = if file.exists() { file } else { parent.path().to_owned() };
    (parent, path)
}

/// Everything that can be read of a model; anything but a panic will do.
fn read_all(path: &Path) -> Result<()> {
    let model = Model::open(path)?;
    let params = model.read()?;
    model.tokenizer()?;
    if model.has_state() {
        model.goes_on(&params)?;
    }
    Ok(())
}

#[test]
fn what_is_written_is_read_back_as_its_own_format() {
    for (which, (format, _)) in valid().iter().enumerate() {
        let (_parent, path) = laid_out(which, |_| {});
        let model = Model::open(&path).unwrap();
        assert_eq!(model.format, *format);
        assert_eq!(tensors(&model.read().unwrap()), tensors(&params(&tiny(*format), 1)));
        read_all(&path).unwrap();
    }
}

#[test]
fn a_file_that_is_cut_anywhere_is_an_error() {
    for (which, (format, files)) in valid().iter().enumerate() {
        for (i, (name, bytes)) in files.iter().enumerate() {
            // What transformers alone reads.
            if name.starts_with("generation") || name.starts_with("tokenizer_config") {
                continue;
            }
            for cut in [bytes.len() - 1, bytes.len() / 2, 100, 9, 8, 4, 1, 0] {
                let (_parent, path) = laid_out(which, |files| files[i].1.truncate(cut));
                // The end of a JSON text and of a GGUF file is blank.
                let blank = !name.ends_with(".pt") && cut == bytes.len() - 1;
                assert!(read_all(&path).is_err() || blank, "{format:?}: {name} cut to {cut}");
            }
        }
    }
    for (which, part) in [(1, "file truncated: expected"), (3, "file truncated: expected")] {
        let whole = valid()[which].1[0].1.len();
        let (_parent, path) = laid_out(which, |files| files[0].1.truncate(whole / 2));
        let said = message(&path);
        assert!(said.contains(part) && said.contains(&format!("have {}", whole / 2)), "{said}");
    }
}

#[test]
fn a_file_of_another_kind_says_what_it_is_whatever_its_name() {
    let parent = tempfile::tempdir().unwrap();
    for name in ["model.gguf", "ckpt.pt", "model.safetensors", "model"] {
        let path = parent.path().join(name);
        for (bytes, part) in [
            (&b"version https://git-lfs.github.com/spec/v1\noid sha256:1"[..], "git lfs pull"),
            (b"<!DOCTYPE html><html><head>", "the link of the file itself"),
            (b"\x80\x02}q\x00(X\x05\0\0\0", "a Python pickle"),
            (b"First Citizen:\n", "begins with \"First Citize\""),
            (b"", "is no model's file"),
        ] {
            fs::write(&path, bytes).unwrap();
            assert!(message(&path).contains(part), "{name}: {part}: {}", message(&path));
        }
        fs::remove_file(&path).unwrap();
    }
}

#[test]
fn lengths_that_no_file_has_are_refused_before_anything_is_allocated() {
    let parent = tempfile::tempdir().unwrap();
    let path = parent.path().join("m");
    let huge = u64::MAX.to_le_bytes();
    let start = [&b"GGUF\x03\0\0\0"[..], &1u64.to_le_bytes(), &1u64.to_le_bytes()].concat();
    let key = [&start[..], &1u64.to_le_bytes(), b"k"].concat();
    for bytes in [
        [&b"GGUF\x03\0\0\0"[..], &huge, &huge].concat(),
        [&start[..], &huge].concat(),
        [&key[..], &8u32.to_le_bytes(), &huge].concat(),
        [&key[..], &9u32.to_le_bytes(), &8u32.to_le_bytes(), &huge].concat(),
        [&key[..], &9u32.to_le_bytes(), &4u32.to_le_bytes(), &huge].concat(),
        [&key[..], &9u32.to_le_bytes(), &9u32.to_le_bytes(), &huge].concat(),
    ] {
        fs::write(&path, bytes).unwrap();
        assert!(read_all(&path).is_err());
    }
    // One tensor of more bytes than there are.
    for dims in [[u64::MAX / 8, 4], [1 << 40, 1 << 40]] {
        let mut bytes = [&b"GGUF\x03\0\0\0"[..], &1u64.to_le_bytes(), &0u64.to_le_bytes()].concat();
        bytes.extend([&1u64.to_le_bytes()[..], b"t", &2u32.to_le_bytes()].concat());
        dims.iter().for_each(|dim| bytes.extend(dim.to_le_bytes()));
        bytes.extend([&0u32.to_le_bytes()[..], &0u64.to_le_bytes()].concat());
        fs::write(&path, bytes).unwrap();
        assert!(read_all(&path).is_err());
    }
}

#[test]
fn a_gguf_of_another_architecture_is_named() {
    let (_parent, path) = laid_out(3, |files| {
        let at = files[0].1.windows(4).position(|four| four == b"gpt2").unwrap();
        files[0].1[at..at + 4].copy_from_slice(b"phi9");
    });
    assert!(message(&path).contains("is a model of architecture phi9"), "{}", message(&path));
    let (_parent, path) = laid_out(3, |files| files[0].1[4] = 9);
    assert!(message(&path).contains("has GGUF version 9"), "{}", message(&path));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..Default::default() })]

    #[test]
    fn any_bytes_are_an_error_and_no_panic(
        start in prop::sample::select(vec![&b""[..], b"GGUF\x03\0\0\0", b"PK\x03\x04", b"\x80\x02"]),
        bytes in prop::collection::vec(any::<u8>(), 0..400),
    ) {
        let parent = tempfile::tempdir().unwrap();
        let path = parent.path().join("m");
        fs::write(&path, [start, &bytes].concat()).unwrap();
        prop_assert!(read_all(&path).is_err());
    }

    #[test]
    fn any_pickle_is_a_value_or_an_error_and_no_panic(
        bytes in prop::collection::vec(
            prop_oneof![
                prop::sample::select(&b"()}].NXKJGMcRQbusaethqrj\x80\x85\x86\x87\x88\x8a\x8c\x93\x94\x95"[..]),
                0..4u8,
            ],
            0..200,
        ),
    ) {
        let _ = pickle::Pickle::read(&bytes);
    }

    #[test]
    fn any_index_of_a_sharded_folder_is_a_model_or_an_error_and_no_panic(
        entries in prop::collection::vec(
            ("(wte.weight|transformer.wpe.weight|h.0.ln_1.bias|.{0,9})",
             "(\"part\"|\"../part\"|\"/etc/passwd\"|\"\"|\"missing\"|null|7|\\{\\})"),
            0..5,
        ),
        end in "(\\}\\}|\\}|,|)",
    ) {
        let (_parent, path) = laid_out(0, |files| {
            let model = files.iter_mut().find(|(name, _)| name == "model.safetensors").unwrap();
            model.0 = "part".into();
            let map: Vec<_> = entries.iter().map(|(name, at)| format!("{name:?}:{at}")).collect();
            let index = format!("{{\"weight_map\":{{{}{end}", map.join(","));
            files.push(("model.safetensors.index.json".into(), index.into_bytes()));
        });
        // Any mention of the part leads to all of its tensors.
        let _ = read_all(&path);
    }

    #[test]
    fn a_valid_model_with_damage_is_an_error_or_loads_and_no_panic(
        which in 0..4usize,
        file in any::<prop::sample::Index>(),
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
        near_the_start in any::<bool>(),
        keep in any::<prop::sample::Index>(),
    ) {
        let (_parent, path) = laid_out(which, |files| {
            let file = file.index(files.len());
            let bytes = &mut files[file].1;
            // Headers and pickles are at the start; a weight may be any number.
            let reach = if near_the_start { bytes.len().min(2000) } else { bytes.len() };
            for (at, value) in damage {
                bytes[at.index(reach)] = value;
            }
            bytes.truncate(keep.index(4 * bytes.len()).min(bytes.len()));
        });
        let _ = read_all(&path);
    }
}
