//! Saves that are killed, that meet, and that meet what users put there.

use super::*;
use crate::checkpoint::MODEL;
use crate::files::read_text;

/// Makes `folder` with one file that says `content`; a checkpoint as far as this file knows.
fn fill(folder: &Path, content: &str) -> Result<()> {
    fs::create_dir_all(folder).unwrap();
    fs::write(folder.join(MODEL), content).unwrap();
    Ok(())
}

fn content(folder: &Path) -> String {
    read_text(&folder.join(MODEL), 100).unwrap()
}

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap();
    let mut names: Vec<_> =
        entries.map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn every_state_a_kill_can_leave_loads_and_is_repaired_by_the_next_save() {
    for (present, loaded) in [
        ("best", "best"),
        ("best saving", "best"),
        ("saving", "nothing"),
        ("saving replaced", "saving"),
        ("best replaced", "best"),
        ("replaced", "replaced"),
        ("", "nothing"),
    ] {
        let parent = tempfile::tempdir().unwrap();
        let best = parent.path().join("best");
        for which in present.split_whitespace() {
            let folder =
                if which == "best" { best.clone() } else { beside(&best, &format!(".{which}")) };
            fill(&folder, which).unwrap();
        }
        let found = current(&best);
        let found = if exists(&found) { content(&found) } else { "nothing".into() };
        assert_eq!(found, loaded, "{present}");
        assert_eq!(names(parent.path()).len(), present.split_whitespace().count());

        let failed = replace(&best, &FILES, |new| {
            fill(new, "half")?;
            Err(Error::checkpoint(new, "no space"))
        });
        assert!(failed.is_err());
        assert_eq!(exists(&best), loaded != "nothing", "{present}");
        assert!(!exists(&best) || content(&best) == loaded, "{present}");
        assert!(names(parent.path()).len() <= 1, "{present}: {:?}", names(parent.path()));

        replace(&best, &FILES, |new| fill(new, "next")).unwrap();
        assert_eq!(content(&best), "next", "{present}");
        assert_eq!(names(parent.path()), ["best"], "{present}");
    }
}

#[cfg(unix)]
#[test]
fn of_two_that_save_at_once_the_second_is_refused_and_the_first_is_whole() {
    let parent = tempfile::tempdir().unwrap();
    let best = parent.path().join("best");
    for saved_before in [false, true] {
        assert_eq!(exists(&best), saved_before);
        replace(&best, &FILES, |new| {
            let error = replace(&best, &FILES, |new| fill(new, "second")).unwrap_err();
            assert!(error.to_string().contains("another process"), "{error}");
            fill(new, "first")
        })
        .unwrap();
        assert_eq!(content(&best), "first");
        assert_eq!(names(parent.path()), ["best"]);
    }
}

#[test]
fn a_users_own_files_in_a_checkpoint_survive_saves_and_removal() {
    let parent = tempfile::tempdir().unwrap();
    let best = parent.path().join("best");
    replace(&best, &FILES, |new| fill(new, "1")).unwrap();
    fs::write(best.join("notes.txt"), "mine").unwrap();
    replace(&best, &FILES, |new| fill(new, "2")).unwrap();
    assert_eq!(names(&best), ["model.safetensors", "notes.txt"]);
    remove(&best).unwrap();
    assert_eq!(names(&best), ["notes.txt"]);
}

#[test]
fn a_replaced_checkpoint_that_cannot_be_removed_is_no_failure_and_goes_with_the_next_save() {
    let parent = tempfile::tempdir().unwrap();
    let best = parent.path().join("best");
    replace(&best, &FILES, |new| fill(new, "1")).unwrap();
    let obstacle = |folder: &Path| folder.join(crate::checkpoint::CONFIG);
    fs::create_dir(obstacle(&best)).unwrap();
    replace(&best, &FILES, |new| fill(new, "2")).unwrap();
    assert_eq!(content(&best), "2");
    assert_eq!(names(parent.path()), ["best", "best.replaced"]);
    assert!(replace(&best, &FILES, |new| fill(new, "3")).is_err());
    assert_eq!(content(&best), "2");
    fs::remove_dir(obstacle(&beside(&best, REPLACED))).unwrap();
    replace(&best, &FILES, |new| fill(new, "4")).unwrap();
    assert_eq!(content(&best), "4");
    assert_eq!(names(parent.path()), ["best"]);
}

#[test]
fn a_users_folder_with_the_name_of_a_save_is_neither_removed_nor_moved() {
    for suffix in [SAVING, REPLACED] {
        for saved_before in [false, true] {
            let parent = tempfile::tempdir().unwrap();
            let best = parent.path().join("best");
            if saved_before {
                replace(&best, &FILES, |new| fill(new, "1")).unwrap();
            }
            let mine = beside(&best, suffix);
            fs::create_dir(&mine).unwrap();
            fs::write(mine.join("thesis.tex"), "mine").unwrap();
            let error = replace(&best, &FILES, |new| fill(new, "2")).unwrap_err();
            assert!(error.to_string().contains("holds what no save wrote"), "{error}");
            assert_eq!(names(&mine), ["thesis.tex"]);
            assert_eq!(exists(&best), saved_before);
        }
    }
}

#[test]
fn a_folder_of_other_things_is_never_replaced() {
    let parent = tempfile::tempdir().unwrap();
    fs::write(parent.path().join("thesis.tex"), "mine").unwrap();
    let error = replace(parent.path(), &FILES, |new| fill(new, "1")).unwrap_err();
    assert!(error.to_string().contains("neither empty nor a checkpoint"), "{error}");
    assert_eq!(names(parent.path()), ["thesis.tex"]);
}

#[test]
fn a_users_file_is_never_replaced_by_a_checkpoint() {
    let parent = tempfile::tempdir().unwrap();
    let file = parent.path().join("book.txt");
    fs::write(&file, "my only copy").unwrap();
    let error = replace(&file, &FILES, |new| fill(new, "1")).unwrap_err();
    assert!(error.to_string().contains("is a file; a model is saved as a folder"), "{error}");
    let error = replace(&file.join("best"), &FILES, |new| fill(new, "1")).unwrap_err();
    assert!(error.to_string().contains("book.txt"), "{error}");
    assert_eq!(names(parent.path()), ["book.txt"]);
    assert_eq!(read_text(&file, 100).unwrap(), "my only copy");
}

#[cfg(unix)]
#[test]
fn a_users_file_behind_a_link_is_never_replaced_and_the_link_stays() {
    let parent = tempfile::tempdir().unwrap();
    let [file, link] = ["book.txt", "best"].map(|name| parent.path().join(name));
    fs::write(&file, "my only copy").unwrap();
    std::os::unix::fs::symlink("book.txt", &link).unwrap();
    let error = replace(&link, &FILES, |new| fill(new, "1")).unwrap_err();
    assert!(error.to_string().contains("is a file"), "{error}");
    assert!(link.is_symlink());
    assert_eq!(names(parent.path()), ["best", "book.txt"]);
    assert_eq!(read_text(&file, 100).unwrap(), "my only copy");
}

#[cfg(unix)]
#[test]
fn a_socket_in_the_place_of_a_checkpoint_is_refused_without_being_opened() {
    let parent = tempfile::tempdir().unwrap();
    let socket = parent.path().join("best");
    let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    let error = replace(&socket, &FILES, |new| fill(new, "1")).unwrap_err();
    assert!(error.to_string().contains("is no folder"), "{error}");
    assert_eq!(names(parent.path()), ["best"]);
}

#[cfg(unix)]
#[test]
fn a_link_that_leads_in_a_circle_is_an_error_and_stays() {
    let parent = tempfile::tempdir().unwrap();
    let link = parent.path().join("best");
    std::os::unix::fs::symlink("best", &link).unwrap();
    assert!(replace(&link, &FILES, |new| fill(new, "1")).is_err());
    assert!(link.is_symlink());
    assert_eq!(names(parent.path()), ["best"]);
}

#[cfg(unix)]
#[test]
fn a_checkpoint_behind_a_link_is_replaced_where_the_link_leads() {
    let parent = tempfile::tempdir().unwrap();
    let (real, link) = (parent.path().join("real"), parent.path().join("best"));
    std::os::unix::fs::symlink("real", &link).unwrap();
    std::os::unix::fs::symlink("best", parent.path().join("twice")).unwrap();
    for (link, expected) in [("best", "1"), ("best", "2"), ("best/", "3"), ("twice", "4")] {
        let link = parent.path().join(link);
        replace(&link, &FILES, |new| fill(new, expected)).unwrap();
        assert_eq!(content(&real), expected);
    }
    assert_eq!(names(parent.path()), ["best", "real", "twice"]);
}

#[cfg(unix)]
#[test]
fn of_many_that_save_at_once_each_saves_whole_or_says_that_another_does() {
    for saved_before in [false, true] {
        let parent = tempfile::tempdir().unwrap();
        let best = parent.path().join("best");
        for round in 0..60 {
            if saved_before {
                replace(&best, &FILES, |new| fill(new, "before")).unwrap();
            } else {
                let _ = fs::remove_dir_all(&best);
            }
            let start = std::sync::Barrier::new(3);
            let save = |content: String| {
                start.wait();
                replace(&best, &FILES, |new| {
                    fs::write(new.join(MODEL), content).map_err(Error::io("write", new))
                })
            };
            let results = std::thread::scope(|scope| {
                let saves = [1, 2, 3].map(|i| scope.spawn(move || save(format!("{round}.{i}"))));
                saves.map(|save| save.join().unwrap())
            });
            for error in results.iter().filter_map(|result| result.as_ref().err()) {
                assert!(error.to_string().contains("another process"), "{error}");
            }
            assert!(results.iter().any(Result::is_ok), "{results:?}");
            assert!(content(&best).starts_with(&format!("{round}.")));
            assert_eq!(names(parent.path()), ["best"]);
        }
    }
}

#[cfg(unix)]
#[test]
fn an_unfinished_folder_that_came_after_the_locks_is_another_process_s_and_stays() {
    let parent = tempfile::tempdir().unwrap();
    let best = parent.path().join("best");
    let (new, held) = (beside(&best, SAVING), Held::take(&best).unwrap());
    fill(&new, "another's").unwrap();
    repair(&best, &FILES, &held).unwrap();
    assert_eq!(content(&new), "another's");
    // What a kill left is locked first, and then removed.
    drop(held);
    repair(&best, &FILES, &Held::take(&best).unwrap()).unwrap();
    assert!(!exists(&new));
    // A lock on what is gone from there guards nothing.
    fill(&new, "1").unwrap();
    let lock = lock(&new).unwrap();
    assert!(is_still(&new, lock.as_ref()));
    fs::rename(&new, &best).unwrap();
    assert!(!is_still(&new, lock.as_ref()) && is_still(&new, None) && !is_still(&best, None));
}
