//! The folder of the cache: files that nobody else can have touched, so many bytes of them.

use std::fs::{self, DirBuilder, Metadata, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, SystemTime};

use parking_lot::Mutex;

/// How long a file may be on its way: what is older was left by a process that died.
const ON_THE_WAY: Duration = Duration::from_secs(3600);

/// The folder.
#[derive(Debug)]
pub(super) struct Folder {
    path: PathBuf,
    /// How many bytes its files may have.
    size: u64,
    /// How many bytes this process has written since it last looked how many there are; `None`
    /// before it has.
    written: Mutex<Option<u64>>,
}

impl Folder {
    /// Opens a folder, or makes it. It must be the user's, and closed to all others.
    pub fn open(path: PathBuf, size: u64) -> io::Result<Folder> {
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent)?;
        }
        match DirBuilder::new().mode(0o700).create(&path) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
        let found = fs::symlink_metadata(&path)?;
        if !(found.is_dir() && is_private(&found)) {
            let what =
                "it is no folder that belongs to the user and is closed to others (mode 700)";
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, what));
        }
        Ok(Folder {
            path,
            size,
            written: Mutex::new(None),
        })
    }

    /// The bytes of a file; `None` where there is none that may be used.
    pub fn read(&self, name: &str) -> Option<Vec<u8>> {
        let mut file = OpenOptions::new()
            .read(true)
            // No link, and no waiting for what is no file.
            .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK)
            .open(self.path.join(name))
            .ok()?;
        let found = file.metadata().ok()?;
        if !(found.is_file() && is_private(&found) && found.len() <= self.size) {
            return None;
        }
        let mut bytes = Vec::with_capacity(found.len() as usize);
        file.read_to_end(&mut bytes).ok()?;
        // Files that were used longest ago go first. Where it may not be changed, nothing goes.
        let _ = file.set_modified(SystemTime::now());
        Some(bytes)
    }

    /// Makes a file of these bytes, or replaces it, all at once.
    pub fn write(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        if bytes.len() as u64 > self.size {
            return Err(io::Error::other("it is larger than the cache may be"));
        }
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let on_the_way = format!("{name}.{}.{number}", std::process::id());
        let on_the_way = self.path.join(on_the_way);
        let mut file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&on_the_way)?;
        let written = file
            .write_all(bytes)
            .and_then(|()| fs::rename(&on_the_way, self.path.join(name)));
        if written.is_err() {
            // What cannot be removed either goes when the folder is full.
            let _ = fs::remove_file(&on_the_way);
        }
        written?;
        self.bound(bytes.len() as u64)
    }

    /// Keeps the folder's files within their size. Looking at all of them takes a while, so a
    /// process does it for the first file that it writes, and then whenever it has written a
    /// sixteenth of what they may be.
    fn bound(&self, more: u64) -> io::Result<()> {
        let mut written = self.written.lock();
        let reserve = self.size / 16;
        if let Some(written) = &mut *written
            && *written + more <= reserve
        {
            *written += more;
            return Ok(());
        }
        *written = Some(0);
        self.sweep(self.size - reserve)
    }

    /// Removes the files that were used longest ago until there are at most `most` bytes.
    fn sweep(&self, most: u64) -> io::Result<()> {
        let mut files = vec![];
        let mut total = 0;
        for entry in fs::read_dir(&self.path)? {
            let entry = entry?;
            // Files of others are left alone, and another process may remove ours meanwhile.
            let name = entry.file_name();
            let Some((_, after)) = name.to_str().and_then(ours) else {
                continue;
            };
            let Ok(found) = entry.metadata() else {
                continue;
            };
            let used = found.modified().unwrap_or(SystemTime::UNIX_EPOCH);
            if !after.is_empty() && used.elapsed().is_ok_and(|since| since > ON_THE_WAY) {
                let _ = fs::remove_file(entry.path());
                continue;
            }
            total += found.len();
            if after.is_empty() {
                files.push((used, found.len(), entry.path()));
            }
        }
        files.sort();
        for (_, length, path) in files {
            if total <= most {
                break;
            }
            let _ = fs::remove_file(path);
            total -= length;
        }
        Ok(())
    }
}

/// A file's name as [`Key::name`](super::Key::name) makes it, and what [`Folder::write`] adds to it
/// while the file is on its way; `None` for the name of a file that is not ours.
fn ours(name: &str) -> Option<(&str, &str)> {
    let (hash, rest) = name.split_at_checked(2 * super::HASH)?;
    let after = rest.strip_prefix(".kernel")?;
    let hex = hash
        .bytes()
        .all(|c| c.is_ascii_digit() || (b'a'..=b'f').contains(&c));
    let number = |c: u8| c.is_ascii_digit() || c == b'.';
    (hex && after.bytes().all(number)).then_some((hash, after))
}

/// It belongs to the user, and nobody else may read, change or enter it.
fn is_private(found: &Metadata) -> bool {
    // SAFETY: geteuid takes nothing and cannot fail.
    let user = unsafe { libc::geteuid() };
    found.uid() == user && found.mode() & 0o077 == 0
}

/// The program runs with rights that its user does not have.
pub(super) fn has_more_rights() -> bool {
    // SAFETY: getauxval looks a number up.
    unsafe { libc::getauxval(libc::AT_SECURE) != 0 }
}
