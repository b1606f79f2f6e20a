//! Compiled kernels, kept on disk from run to run: a test suite compiles each kernel once.
//!
//! The cache is a folder with a file for each kernel, named by its [`Key`]: a hash of all that the
//! code depends on. A file is a header, the key, the [`Object`], and a hash of all that. What does
//! not fit is ignored and replaced.
//!
//! Files hold machine code that is going to run. So the folder and each file must belong to the
//! user, and nobody else may have any access; otherwise they are not used. Files appear under their
//! names complete, by renaming, so any number of processes may use the folder at once.
//!
//! No launch fails because of the cache: what goes wrong here is logged, and the kernel is
//! compiled.

mod folder;
mod key;
#[cfg(test)]
mod tests;

use std::path::PathBuf;
use std::sync::OnceLock;

use sha2::{Digest, Sha256};

use self::folder::Folder;
pub(crate) use self::key::{Key, Source};
use super::dump;
use super::object::Object;
use crate::memory;

/// How many bytes files may take, unless `SOFTCUDA_CACHE_SIZE` says otherwise.
const DEFAULT_SIZE: u64 = 256 << 20;
/// What files begin with; the number is the format's.
const MAGIC: &[u8; 8] = b"softcud1";
/// Bytes of a hash.
const HASH: usize = 32;

/// A folder of compiled kernels.
#[derive(Debug)]
pub(crate) struct Cache {
    folder: Folder,
}

impl Cache {
    /// What `SOFTCUDA_CACHE` says: a folder, or `off`; without, `softcuda` in the user's folder for
    /// caches. `None` where it cannot be used. Unit tests use those that they make.
    pub fn of_environment() -> Option<&'static Cache> {
        static CACHE: OnceLock<Option<Cache>> = OnceLock::new();
        match cfg!(test) {
            true => None,
            false => CACHE.get_or_init(Cache::find).as_ref(),
        }
    }

    fn find() -> Option<Cache> {
        // Who wants dumps wants everything compiled. A program with more rights than its user must
        // not take the user's word for where code is.
        if dump::on() || folder::has_more_rights() {
            return None;
        }
        let chosen = std::env::var_os("SOFTCUDA_CACHE").filter(|value| !value.is_empty());
        let (path, by_user) = match chosen {
            Some(value) if value == "off" => return None,
            Some(value) => (std::path::absolute(value).ok()?, true),
            None => (default_folder()?, false),
        };
        let size = match std::env::var("SOFTCUDA_CACHE_SIZE") {
            Ok(text) if text.trim() == "0" => return None,
            Ok(text) => memory::parse_size(&text).unwrap_or_else(|| {
                tracing::warn!(
                    "SOFTCUDA_CACHE_SIZE={text} is no size such as 256M: {DEFAULT_SIZE} is used"
                );
                DEFAULT_SIZE
            }),
            Err(_) => DEFAULT_SIZE,
        };
        match Cache::open(path.clone(), size) {
            Ok(cache) => Some(cache),
            Err(error) => {
                let what = "kernels are not kept from run to run";
                match by_user {
                    true => tracing::warn!("SOFTCUDA_CACHE={}: {error}: {what}", path.display()),
                    false => tracing::debug!("{}: {error}: {what}", path.display()),
                }
                None
            }
        }
    }

    /// The cache in this folder, which is made if it is not there, with files of so many bytes.
    pub fn open(path: PathBuf, size: u64) -> std::io::Result<Cache> {
        let folder = Folder::open(path, size)?;
        Ok(Cache { folder })
    }

    /// The kernel of a key, if it is there and whole.
    pub fn get(&self, key: &Key) -> Option<Object> {
        let bytes = self.folder.read(&key.name())?;
        let object = unpack(key, &bytes);
        if object.is_none() {
            tracing::debug!("{}: damaged, and replaced", key.name());
        }
        object
    }

    /// Keeps a kernel.
    pub fn put(&self, key: &Key, object: &Object) {
        if let Err(error) = self.folder.write(&key.name(), &pack(key, object)) {
            tracing::debug!("{}: not kept: {error}", key.name());
        }
    }
}

/// `$XDG_CACHE_HOME/softcuda`, or `~/.cache/softcuda`.
fn default_folder() -> Option<PathBuf> {
    let folder = |name| {
        let path = PathBuf::from(std::env::var_os(name)?);
        path.is_absolute().then_some(path)
    };
    let caches = folder("XDG_CACHE_HOME").or_else(|| Some(folder("HOME")?.join(".cache")))?;
    Some(caches.join("softcuda"))
}

/// The bytes of a file.
fn pack(key: &Key, object: &Object) -> Vec<u8> {
    let mut bytes = MAGIC.to_vec();
    bytes.extend_from_slice(key.bytes());
    bytes.extend_from_slice(&object.to_bytes());
    let hash = Sha256::digest(&bytes);
    bytes.extend_from_slice(&hash);
    bytes
}

/// The object of a file, if nothing in it has changed since it was packed.
fn unpack(key: &Key, bytes: &[u8]) -> Option<Object> {
    let (bytes, hash) = bytes.split_at_checked(bytes.len().checked_sub(HASH)?)?;
    let rest = bytes.strip_prefix(MAGIC)?.strip_prefix(key.bytes())?;
    (Sha256::digest(bytes)[..] == *hash).then(|| Object::of_bytes(rest))?
}
