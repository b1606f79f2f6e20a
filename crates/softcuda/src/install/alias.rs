//! A library without code: its SONAME is `libcuda.so`, and it needs `libcuda.so.1`, where its
//! symbols are looked up.
//!
//! Made at run time, because a build makes one library of one name: an ELF file of three segments
//! and a dynamic section.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsRawFd, FromRawFd};

const NAME: &str = "libcuda.so";
const NEEDED: &str = "libcuda.so.1";

const HEADER: u64 = 64;
const SEGMENT: u64 = 56;
const SEGMENTS: u64 = 3;
const SYMBOL: u64 = 24;
const DYNAMIC_ENTRY: u64 = 16;

// Of the ELF specification, and of its GNU supplement.
const ET_DYN: u16 = 3;
#[cfg(target_arch = "x86_64")]
const MACHINE: u16 = 62;
#[cfg(target_arch = "aarch64")]
const MACHINE: u16 = 183;
const PT_LOAD: u32 = 1;
const PT_DYNAMIC: u32 = 2;
const PT_GNU_STACK: u32 = 0x6474_e551;
const READ_WRITE: u32 = 6;
const DT_NULL: u64 = 0;
const DT_NEEDED: u64 = 1;
const DT_STRTAB: u64 = 5;
const DT_SYMTAB: u64 = 6;
const DT_STRSZ: u64 = 10;
const DT_SYMENT: u64 = 11;
const DT_SONAME: u64 = 14;

/// Loads it.
pub(super) fn load() -> io::Result<()> {
    // SAFETY: the name is a C string.
    let fd = unsafe { libc::memfd_create(c"libcuda.so".as_ptr(), libc::MFD_CLOEXEC) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor was just opened and is nobody else's.
    let mut file = unsafe { File::from_raw_fd(fd) };
    file.write_all(&image())?;
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    super::Library::load(path.as_ref()).map_err(io::Error::other)?;
    Ok(())
}

/// The file's bytes: header, segments, one null symbol, names, dynamic section.
fn image() -> Vec<u8> {
    let names = format!("\0{NAME}\0{NEEDED}\0");
    let (name, needed) = (1, 1 + NAME.len() as u64 + 1);
    let symbols = HEADER + SEGMENTS * SEGMENT;
    let strings = symbols + SYMBOL;
    let dynamic = (strings + names.len() as u64).next_multiple_of(8);
    let entries = [
        (DT_NEEDED, needed),
        (DT_SONAME, name),
        (DT_STRTAB, strings),
        (DT_STRSZ, names.len() as u64),
        (DT_SYMTAB, symbols),
        (DT_SYMENT, SYMBOL),
        (DT_NULL, 0),
    ];
    let dynamic_size = entries.len() as u64 * DYNAMIC_ENTRY;
    let size = dynamic + dynamic_size;

    let mut image = Vec::with_capacity(size as usize);
    // 64 bits, little endian, version 1, System V.
    image.extend(b"\x7fELF\x02\x01\x01\x00");
    image.extend([0; 8]);
    image.extend(ET_DYN.to_le_bytes());
    image.extend(MACHINE.to_le_bytes());
    image.extend(1u32.to_le_bytes());
    // No entry point; segments follow the header; no sections.
    for word in [0, HEADER, 0] {
        image.extend(word.to_le_bytes());
    }
    image.extend(0u32.to_le_bytes());
    for half in [HEADER as u16, SEGMENT as u16, SEGMENTS as u16, 64, 0, 0] {
        image.extend(half.to_le_bytes());
    }
    // The loader writes addresses into the dynamic section, so it is loaded writable; without the
    // last segment the loader would make the program's stack executable.
    let segments = [
        (PT_LOAD, 0, size, 4096),
        (PT_DYNAMIC, dynamic, dynamic_size, 8),
        (PT_GNU_STACK, 0, 0, 16),
    ];
    for (kind, offset, size, align) in segments {
        image.extend(kind.to_le_bytes());
        image.extend(READ_WRITE.to_le_bytes());
        for word in [offset, offset, offset, size, size, align] {
            image.extend(u64::to_le_bytes(word));
        }
    }
    image.extend([0; SYMBOL as usize]);
    image.extend(names.as_bytes());
    image.resize(dynamic as usize, 0);
    for (tag, value) in entries {
        image.extend(tag.to_le_bytes());
        image.extend(value.to_le_bytes());
    }
    image
}
