//! Files that are cut, changed, too large or something else: each is told, and none is trusted.

use super::*;
use proptest::prelude::*;

#[test]
fn missing_unexpected_misshapen_and_whole_number_tensors_are_named() {
    let (_parent, folder) = saved(&tiny(true));
    rewrite(&folder, |tensors| {
        tensors.remove("transformer.h.1.ln_1.weight");
        tensors.insert("transformer.h.2.ln_1.weight".into(), (Dtype::F32, vec![6], vec![0; 24]));
        tensors.get_mut("transformer.wte.weight").unwrap().1 = vec![6, 5];
        let ln_f = (Dtype::I64, vec![6], vec![0; 48]);
        tensors.insert("transformer.ln_f.weight".into(), ln_f);
    });
    let text = message(&folder);
    for part in [
        "missing transformer.h.1.ln_1.weight (6)",
        "unexpected transformer.h.2.ln_1.weight (6)",
        "transformer.wte.weight: expected (5, 6), found (6, 5)",
        "transformer.ln_f.weight: expected F32, F16 or BF16, found I64",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    rewrite(&folder, |tensors| tensors.retain(|name, _| name.contains("ln_f")));
    let text = message(&folder);
    assert!(text.matches("missing").count() == 5 && text.contains("and 22 more"), "{text}");
}

#[test]
fn a_truncated_file_says_how_many_bytes_it_lacks_wherever_it_is_cut() {
    let (_parent, folder) = saved(&tiny(true));
    let whole = fs::read(folder.join(MODEL)).unwrap();
    let data_start = 8 + u64::from_le_bytes(whole[..8].try_into().unwrap()) as usize;
    for cut in [whole.len() - 1, whole.len() / 2, data_start, data_start - 1, 9] {
        fs::write(folder.join(MODEL), &whole[..cut]).unwrap();
        let expected = if cut < data_start { data_start } else { whole.len() };
        let text = message(&folder);
        assert!(text.contains(&format!("expected {expected} bytes")), "{cut}: {text}");
        assert!(text.contains(&format!("have {cut}")), "{cut}: {text}");
    }
    for cut in [0, 7] {
        fs::write(folder.join(MODEL), &whole[..cut]).unwrap();
        assert!(message(&folder).contains(&format!("has {cut} bytes")), "{}", message(&folder));
    }
    fs::write(folder.join(MODEL), [&whole[..], b"more"].concat()).unwrap();
    assert!(message(&folder).contains("its header describes"), "{}", message(&folder));
}

#[test]
fn folders_that_are_no_checkpoint_say_what_they_are() {
    let parent = tempfile::tempdir().unwrap();
    let run = parent.path().join("run");
    assert!(message(&run).contains("no such file or folder"));
    fs::create_dir(&run).unwrap();
    assert!(message(&run).contains("empty folder"));
    save(&run.join("best"), &tiny(true), &params(&tiny(true), 1), None, None).unwrap();
    assert!(message(&run).contains("is a run") && message(&run).contains("run/best"));
    fs::remove_file(run.join("best/config.json")).unwrap();
    assert!(message(&run.join("best")).contains("a model needs its config.json"));
}

#[test]
fn a_config_that_is_not_ours_or_not_whole_is_refused_by_key() {
    let (_parent, folder) = saved(&tiny(true));
    let whole = fs::read_to_string(folder.join(CONFIG)).unwrap();
    for (from, to, part) in [
        ("\"tinygpt\"", "\"gpt2\"", "Hugging Face"),
        ("\"tinygpt\"", "\"llama\"", "expected \"gpt2\""),
        ("\"format_version\": 1", "\"format_version\": 2", "format_version is 2"),
        ("\"activation\": \"gelu\"", "\"dropout\": 0", "has no activation"),
        ("\"activation\": \"gelu\"", "\"activation\": \"relu\"", "relu"),
        ("\"bias\"", "\"n_inner\": 24, \"bias\"", "n_inner"),
        ("\"n_head\": 2", "\"n_head\": 4", "multiple of n_head = 4"),
        ("\"n_layer\": 2", "\"n_layer\": 400000000", "n_layer = 400000000: must be at most 10000"),
        ("\"n_embd\": 6", "\"n_embd\": 40000", "found (5, 6)"),
        ("}", "", "is not valid"),
    ] {
        assert!(whole.contains(from), "{from}");
        fs::write(folder.join(CONFIG), whole.replace(from, to)).unwrap();
        assert!(message(&folder).contains(part), "{part}: {}", message(&folder));
    }
}

#[test]
fn a_file_that_is_too_large_no_text_or_a_folder_is_a_fault_of_the_checkpoint() {
    type Damage = fn(&Path);
    let folder: Damage = |file| fs::create_dir(file).unwrap();
    let no_text: Damage = |file| fs::write(file, b"{\xFF").unwrap();
    let large: Damage = |file| fs::File::create(file).unwrap().set_len((1 << 26) + 1).unwrap();
    for (name, damage, part) in [
        (MODEL, folder, "is a folder; expected a file"),
        (STATE, folder, "is a folder; expected a file"),
        (CONFIG, folder, "is a folder; expected a file"),
        (CONFIG, no_text, "is not UTF-8 text (byte 1)"),
        (CONFIG, large, "is larger than 1048576 bytes"),
        (TOKENIZER, folder, "is a folder; expected a file"),
        (TOKENIZER, no_text, "is not UTF-8 text (byte 1)"),
        (TOKENIZER, large, "is larger than 67108864 bytes"),
    ] {
        let parent = tempfile::tempdir().unwrap();
        let best = parent.path().join("best");
        save_all(&best, &tiny(true), 1).unwrap();
        let file = best.join(name);
        fs::remove_file(&file).unwrap();
        damage(&file);
        let state = TrainState::load(&best, &params(&tiny(true), 10)).map(drop);
        let failed = match name {
            MODEL => vec![Checkpoint::load(&best).map(drop)],
            STATE => vec![state, read_progress(&best).map(drop)],
            CONFIG => vec![Checkpoint::load(&best).map(drop), read_config(&best).map(drop)],
            _ => vec![Checkpoint::load(&best).map(drop), read_tokenizer(&best).map(drop)],
        };
        for result in failed {
            match result.unwrap_err() {
                Error::Checkpoint { path, problem, .. } => {
                    assert_eq!((path, &*problem), (file.clone(), part));
                }
                other => panic!("{name}: {other:?}"),
            }
        }
    }
}

#[test]
fn headers_that_claim_the_impossible_are_refused_before_anything_is_allocated() {
    let (_parent, folder) = saved(&tiny(true));
    for header in [
        r#"{"a":{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,0]}}"#.into(),
        r#"{"a":{"dtype":"F32","shape":[1099511627776],"data_offsets":[0,4398046511104]}}"#.into(),
        format!(r#"{{"a":{{"dtype":"U8","shape":[{0}],"data_offsets":[0,{0}]}}}}"#, u64::MAX / 8),
        "[".repeat(100_000).replacen('[', "{\"a\":", 1),
    ] {
        let bytes = [&(header.len() as u64).to_le_bytes(), header.as_bytes()].concat();
        fs::write(folder.join(MODEL), bytes).unwrap();
        assert!(Checkpoint::load(&folder).is_err(), "{header:.80}");
    }
}

/// The bytes of every file of a checkpoint, made once.
fn valid_files() -> &'static [Vec<u8>] {
    static VALID: std::sync::OnceLock<Vec<Vec<u8>>> = std::sync::OnceLock::new();
    VALID.get_or_init(|| {
        let parent = tempfile::tempdir().unwrap();
        let folder = parent.path().join("best");
        save_all(&folder, &tiny(true), 1).unwrap();
        FILES.iter().map(|name| fs::read(folder.join(name)).unwrap()).collect()
    })
}

/// Loads everything from a folder where file `which` holds `bytes`; anything but a panic will do.
fn load_with(which: usize, bytes: &[u8]) {
    let folder = tempfile::tempdir().unwrap();
    for (name, contents) in FILES.iter().zip(valid_files()) {
        fs::write(folder.path().join(name), contents).unwrap();
    }
    fs::write(folder.path().join(FILES[which]), bytes).unwrap();
    let _ = Checkpoint::load(folder.path());
    let _ = read_progress(folder.path());
    let _ = TrainState::load(folder.path(), &params(&tiny(true), 10));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..Default::default() })]

    #[test]
    fn any_bytes_in_any_file_are_an_error_and_no_panic(
        which in 0..4usize,
        bytes in prop::collection::vec(any::<u8>(), 0..300),
        length in prop::option::of(any::<u64>()),
    ) {
        let header = length.map(|length| [&length.to_le_bytes()[..], b"{"].concat());
        load_with(which, &[header.unwrap_or_default(), bytes].concat());
    }

    #[test]
    fn a_valid_file_with_damage_is_an_error_or_loads_and_no_panic(
        which in 0..4usize,
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
        digits in any::<bool>(),
        keep in any::<prop::sample::Index>(),
    ) {
        let mut bytes = valid_files()[which].clone();
        // Half of the time only digits change: lengths, shapes and offsets that are still JSON.
        let may_change = |&i: &usize| !digits || bytes[i].is_ascii_digit();
        let places: Vec<_> = (0..bytes.len()).filter(may_change).collect();
        for (at, value) in damage {
            bytes[*at.get(&places)] = if digits { b'0' + value % 10 } else { value };
        }
        if !digits {
            bytes.truncate(keep.index(2 * bytes.len()).min(bytes.len()));
        }
        load_with(which, &bytes);
    }
}
