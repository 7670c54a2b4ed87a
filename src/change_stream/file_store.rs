//! Checkpoints of change streams that are kept in a file.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::future::poll_fn;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Poll, Waker};
use std::time::Duration;
use std::{process, thread};

use bson::RawDocumentBuf;

use super::ResumeToken;
use super::checkpoint::{CheckpointStore, Superseded};
use crate::error::Error;

/// The most that a file may have: a token is not as long as a document.
const MAX_LEN: u64 = 16 << 20;

/// The age at which the file of a token that is being written is one that was left.
const LEFT: Duration = Duration::from_secs(60);

/// A place for the token of one change stream in a file, which has the token as BSON.
///
/// A token is written to another file beside it, and takes its place when it is on the disk, so
/// that there is always a whole one. A thread of its own waits for the disk. What a process leaves
/// that ends meanwhile is removed when a token is loaded a minute later.
///
/// One stream at a time has a file: once another one has saved its place, of this process or of
/// another, the first fails to save its own. A clone is a store of the same file, as a new one is.
#[derive(Debug)]
pub struct FileCheckpointStore {
    path: Arc<Path>,
    known: Arc<Mutex<Known>>,
    /// Held while the file is read or written: the stores of a process do that one after the other.
    turn: Arc<Mutex<()>>,
}

/// The bytes that a file has, as far as a store knows.
#[derive(Debug, Default)]
enum Known {
    #[default]
    Any,
    /// Those that were read or written last, `None` if there was no file.
    Last(Option<Vec<u8>>),
}

impl FileCheckpointStore {
    /// Names the file, which is made with the first token; its folder must be there.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        let path: Arc<Path> = path.into().into();
        Self { turn: turn(&path), known: Arc::default(), path }
    }

    fn says(&self, what: &str, error: &dyn std::fmt::Display) -> Error {
        Error::custom(format!("the checkpoint {} cannot be {what}: {error}", self.path.display()))
    }

    /// Has a thread do something with the file, and with what is known of it.
    async fn in_turn<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Path, &mut Known) -> io::Result<T> + Send + 'static,
    ) -> io::Result<T> {
        let (path, known) = (Arc::clone(&self.path), Arc::clone(&self.known));
        let turn = Arc::clone(&self.turn);
        elsewhere(move || {
            let _held = lock(&turn);
            work(&path, &mut lock(&known))
        })
        .await
    }
}

impl Clone for FileCheckpointStore {
    fn clone(&self) -> Self {
        Self::new(&*self.path)
    }
}

impl CheckpointStore for FileCheckpointStore {
    async fn load(&self) -> Result<Option<ResumeToken>, Error> {
        let load = |path: &Path, known: &mut Known| {
            sweep(path);
            let bytes = read(path)?;
            *known = Known::Last(bytes.clone());
            Ok(bytes)
        };
        let read = self.in_turn(load).await.map_err(|error| self.says("read", &error))?;
        let token = read.map(RawDocumentBuf::from_bytes).transpose();
        Ok(token.map_err(|error| self.says("read", &error))?.map(ResumeToken::new))
    }

    async fn save(&self, token: &ResumeToken) -> Result<(), Error> {
        let bytes = token.document().as_bytes().to_vec();
        let save = move |path: &Path, known: &mut Known| {
            if let Known::Last(last) = known {
                let found = read(path)?;
                // A file that was removed is not another stream's.
                if found.is_some() && found != *last {
                    return Ok(false);
                }
            }
            let written = write(path, &bytes);
            // It may have them although it is not known whether they are on the disk.
            if written.is_ok() || read(path).is_ok_and(|it| it.as_ref() == Some(&bytes)) {
                *known = Known::Last(Some(bytes));
            }
            written.map(|()| true)
        };
        match self.in_turn(save).await.map_err(|error| self.says("written", &error))? {
            true => Ok(()),
            false => Err(Superseded(self.path.to_string_lossy().into()).into()),
        }
    }
}

/// Returns the turn of the stores of a file in this process.
fn turn(path: &Path) -> Arc<Mutex<()>> {
    static TURNS: Mutex<BTreeMap<PathBuf, Weak<Mutex<()>>>> = Mutex::new(BTreeMap::new());
    let mut turns = lock(&TURNS);
    turns.retain(|_, it| it.strong_count() > 0);
    if let Some(turn) = turns.get(path).and_then(Weak::upgrade) {
        return turn;
    }
    let turn = Arc::default();
    turns.insert(path.to_owned(), Arc::downgrade(&turn));
    turn
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Removes the files beside it of processes that ended while they wrote them; an error leaves them.
fn sweep(path: &Path) {
    let Some(name) = path.file_name() else { return };
    for entry in fs::read_dir(folder(path)).into_iter().flatten().flatten() {
        let written = entry.metadata().and_then(|it| it.modified()).ok();
        let age = written.and_then(|written| written.elapsed().ok());
        if is_beside(name, &entry.file_name()) && age.is_some_and(|age| age >= LEFT) {
            let _ = fs::remove_file(entry.path());
        }
    }
}

/// Returns whether a name is one that [`write()`] gives to the file beside this one.
fn is_beside(name: &OsStr, other: &OsStr) -> bool {
    let between = other.as_encoded_bytes().strip_prefix(name.as_encoded_bytes());
    let between = between.and_then(|it| it.strip_prefix(b"."));
    let numbers = between.and_then(|it| it.strip_suffix(b".new")).map(str::from_utf8);
    let Some(Ok(numbers)) = numbers else { return false };
    let parsed = numbers.split_once('-').map(|(id, number)| (id.parse(), number.parse()));
    // Written again, as numbers may be parsed from more than they are written as.
    matches!(parsed, Some((Ok(id), Ok(number))) if beside(id, number) == numbers)
}

/// Returns the part of such a name that the process and the count make up.
fn beside(id: u32, number: u64) -> String {
    format!("{id}-{number}")
}

/// Returns the folder of a file.
fn folder(path: &Path) -> &Path {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    }
}

fn read(path: &Path) -> io::Result<Option<Vec<u8>>> {
    let length = match fs::metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        metadata => metadata?.len(),
    };
    match length <= MAX_LEN {
        true => fs::read(path).map(Some),
        false => Err(io::Error::other("it is longer than any token")),
    }
}

fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    // Another process may write at the same time.
    static WRITTEN: AtomicU64 = AtomicU64::new(0);
    let number = WRITTEN.fetch_add(1, Ordering::Relaxed);
    let mut written = path.as_os_str().to_owned();
    written.push(format!(".{}.new", beside(process::id(), number)));
    let written = PathBuf::from(written);
    let replaced = replace(path, &written, bytes);
    if replaced.is_err() {
        let _ = fs::remove_file(&written);
    }
    replaced
}

fn replace(path: &Path, beside: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = File::create(beside)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    fs::rename(beside, path)?;
    // The name is on the disk when the folder is.
    #[cfg(unix)]
    File::open(folder(path))?.sync_all()?;
    Ok(())
}

/// The outcome of what a thread does, and the task that waits for it.
type Done<T> = (Option<io::Result<T>>, Option<Waker>);

/// Has a thread do what waits for the disk, and waits for that.
async fn elsewhere<T: Send + 'static>(
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    let done: Arc<Mutex<Done<T>>> = Arc::new(Mutex::new((None, None)));
    let of_thread = Arc::clone(&done);
    thread::Builder::new().name("sdam-checkpoint".to_owned()).spawn(move || {
        let outcome = work();
        let mut done = lock(&of_thread);
        done.0 = Some(outcome);
        let waker = done.1.take();
        drop(done);
        waker.into_iter().for_each(Waker::wake);
    })?;
    poll_fn(|cx| {
        let waker = cx.waker().clone();
        let mut done = lock(&done);
        match done.0.take() {
            Some(outcome) => Poll::Ready(outcome),
            None => {
                let earlier = done.1.replace(waker);
                drop(done);
                drop(earlier);
                Poll::Pending
            }
        }
    })
    .await
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::future::Future;
    use std::pin::pin;
    use std::sync::Arc;
    use std::task::{Context, Poll, Wake};
    use std::thread::{self, Thread};
    use std::time::{Duration, SystemTime};

    use bson::rawdoc;

    use super::{CheckpointStore, FileCheckpointStore, LEFT, ResumeToken, Superseded};

    struct Unpark(Thread);

    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }

    fn wait<T>(future: impl Future<Output = T>) -> T {
        let (waker, mut future) = (Arc::new(Unpark(thread::current())).into(), pin!(future));
        loop {
            match future.as_mut().poll(&mut Context::from_waker(&waker)) {
                Poll::Ready(output) => return output,
                Poll::Pending => thread::park(),
            }
        }
    }

    #[test]
    fn a_file_has_the_last_token_and_there_is_no_other() {
        let folder = tempfile::tempdir().unwrap();
        let store = FileCheckpointStore::new(folder.path().join("orders"));
        assert_eq!(wait(store.load()).unwrap(), None);
        for n in 1..=3 {
            let token = ResumeToken::new(rawdoc! { "_data": n });
            wait(store.save(&token)).unwrap();
            assert_eq!(wait(store.load()).unwrap(), Some(token));
        }
        let names: Vec<_> = fs::read_dir(folder.path()).unwrap().collect();
        assert_eq!(names.len(), 1, "{names:?}");
    }

    #[test]
    fn files_that_were_left_are_removed_and_no_others() {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str, age: Duration| {
            let file = fs::File::create(folder.path().join(name)).unwrap();
            file.set_modified(SystemTime::now() - age).unwrap();
        };
        file("orders.17-0.new", LEFT * 2);
        file("orders.17-1.new", Duration::ZERO);
        let others = [
            "orders.+17-0.new",
            "orders.2026-11-29.new",
            "orders.20261129.new",
            "orders.backup.new",
            "orders.new",
            "others.17-0.new",
        ];
        others.iter().for_each(|name| file(name, LEFT * 2));
        let store = FileCheckpointStore::new(folder.path().join("orders"));
        assert_eq!(wait(store.load()).unwrap(), None);
        let names = fs::read_dir(folder.path()).unwrap();
        let mut names: Vec<_> = names.map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        let mut kept = others.to_vec();
        kept.insert(1, "orders.17-1.new");
        assert_eq!(names, kept);
    }

    /// As an old process and a new one may for a moment.
    #[test]
    fn several_stores_of_a_file_leave_a_whole_token_at_any_time() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("orders");
        thread::scope(|scope| {
            for writer in 0..4 {
                let path = &path;
                scope.spawn(move || {
                    for n in 0..10 {
                        let store = FileCheckpointStore::new(path);
                        let token = ResumeToken::new(rawdoc! { "_data": writer * 100 + n });
                        wait(store.save(&token)).unwrap();
                        assert!(wait(store.load()).unwrap().is_some());
                    }
                });
            }
        });
        let names: Vec<_> = fs::read_dir(folder.path()).unwrap().collect();
        assert_eq!(names.len(), 1, "{names:?}");
    }

    /// Two streams hand out the same events, and one that is behind would put the other back.
    #[test]
    fn of_two_streams_of_a_file_the_one_that_saves_later_is_told() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("orders");
        let [one, two, three] = [1, 2, 3].map(|n| ResumeToken::new(rawdoc! { "_data": n }));
        let first = FileCheckpointStore::new(&path);
        for second in [first.clone(), FileCheckpointStore::new(&path)] {
            wait(first.load()).unwrap();
            wait(second.load()).unwrap();
            wait(first.save(&one)).unwrap();
            for token in [&one, &two] {
                let error = wait(second.save(token)).unwrap_err();
                assert!(Superseded::is_cause_of(&error), "{error}");
                assert!(error.to_string().contains("orders"), "{error}");
            }
            wait(first.save(&two)).unwrap();
            // The first may be one of another process, which this one follows.
            assert_eq!(wait(second.load()).unwrap(), Some(two.clone()));
            wait(second.save(&three)).unwrap();
            assert!(Superseded::is_cause_of(&wait(first.save(&three)).unwrap_err()));
            fs::remove_file(&path).unwrap();
            wait(second.save(&three)).unwrap();
        }
    }

    #[test]
    fn a_save_that_has_failed_is_tried_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("late/orders");
        let store = FileCheckpointStore::new(&path);
        assert_eq!(wait(store.load()).unwrap(), None);
        let token = ResumeToken::new(rawdoc! { "_data": 1 });
        wait(store.save(&token)).unwrap_err();
        fs::create_dir(path.parent().unwrap()).unwrap();
        wait(store.save(&token)).unwrap();
        assert_eq!(wait(store.load()).unwrap(), Some(token));
    }

    #[test]
    fn a_file_that_cannot_be_used_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let broken = folder.path().join("broken");
        fs::write(&broken, [9, 0, 0, 0, 1]).unwrap();
        let error = wait(FileCheckpointStore::new(&broken).load()).unwrap_err().to_string();
        assert!(error.contains("broken cannot be read: "), "{error}");
        let nowhere = FileCheckpointStore::new(folder.path().join("nowhere/orders"));
        let token = ResumeToken::new(rawdoc! { "_data": 1 });
        let error = wait(nowhere.save(&token)).unwrap_err().to_string();
        assert!(error.contains("nowhere/orders cannot be written: "), "{error}");
        assert_eq!(wait(nowhere.load()).unwrap(), None);
    }
}
