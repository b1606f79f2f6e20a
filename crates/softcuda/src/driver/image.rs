//! Code as programs hand it to the driver: PTX text, a fat binary that holds PTX (plain, or
//! compressed by LZ4 or Zstandard, which is nvcc's default), or something for a real device.
//!
//! Invariant: of an image in memory, whose size nobody tells us, no byte is read beyond what its
//! own headers, or the text's NUL, say; and a size in a header is not trusted beyond [`MOST`].

use std::io::Read;

use super::{CUresult, Result};

/// `__fatBinC_Wrapper_t`: what nvcc puts into a program's `.nvFatBinSegment`.
const WRAPPER: u32 = 0x4662_43b1;
/// A fat binary itself.
const FATBIN: u32 = 0xba55_ed50;
const ELF: [u8; 4] = *b"\x7fELF";
/// No image is larger, plain or unpacked.
const MOST: u64 = 1 << 30;

/// An entry's kind: PTX text. A compiled one is 2, and others are the compiler's intermediate
/// forms.
const KIND_PTX: u16 = 1;
const COMPRESSED_LZ4: u64 = 0x2000;
const COMPRESSED_ZSTD: u64 = 0x8000;

/// The PTX text of an image, without its NUL.
///
/// # Safety
/// `image` points at an image that is complete by its own account: text to its NUL, headers and
/// what they span.
pub(crate) unsafe fn read(image: *const u8, capability: u32) -> Result<Vec<u8>> {
    if image.is_null() {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    // SAFETY: the text's NUL is a byte of the image, so reading up to it or to a fourth byte stays
    // inside.
    let start: Vec<u8> = (0..4)
        .map(|index| unsafe { *image.add(index) })
        .scan(false, |over, byte| {
            let go_on = !*over;
            *over |= byte == 0;
            go_on.then_some(byte)
        })
        .collect();
    match <[u8; 4]>::try_from(start.as_slice()).map(u32::from_le_bytes) {
        Ok(WRAPPER) => {
            // SAFETY: a wrapper has a version after its magic and then a pointer to the fat binary.
            let fatbin = unsafe { image.add(8).cast::<*const u8>().read_unaligned() };
            if fatbin.is_null() {
                return Err(CUresult::CUDA_ERROR_INVALID_IMAGE);
            }
            // SAFETY: the wrapper points at a complete fat binary.
            unsafe { read_fatbin(fatbin, capability) }
        }
        // SAFETY: as the caller promises.
        Ok(FATBIN) => unsafe { read_fatbin(image, capability) },
        Ok(magic) if magic.to_le_bytes() == ELF => {
            // SAFETY: an ELF file's header has 64 bytes.
            Err(refuse_elf(unsafe { std::slice::from_raw_parts(image, 64) }))
        }
        _ => {
            // SAFETY: it is text that ends in NUL.
            let text = unsafe { std::ffi::CStr::from_ptr(image.cast()) };
            Ok(text.to_bytes().to_vec())
        }
    }
}

/// The PTX text of an image of known size: a file, or data given to the linker.
pub(crate) fn read_sized(image: &[u8], capability: u32) -> Result<Vec<u8>> {
    match image.first_chunk::<4>().copied() {
        Some(magic) if u32::from_le_bytes(magic) == FATBIN => select(image, capability),
        Some(ELF) => Err(refuse_elf(image)),
        _ => {
            let end = image
                .iter()
                .position(|&byte| byte == 0)
                .unwrap_or(image.len());
            Ok(image[..end].to_vec())
        }
    }
}

/// Machine code of a real device is code, but not for this one; anything else is broken.
fn refuse_elf(image: &[u8]) -> CUresult {
    const EM_CUDA: u16 = 190;
    match image
        .get(..20)
        .map(|header| (header[4], word16(header, 18)))
    {
        Some((2, EM_CUDA)) => CUresult::CUDA_ERROR_NO_BINARY_FOR_GPU,
        _ => CUresult::CUDA_ERROR_INVALID_IMAGE,
    }
}

/// # Safety
/// `fatbin` points at a complete fat binary, as its headers tell.
unsafe fn read_fatbin(fatbin: *const u8, capability: u32) -> Result<Vec<u8>> {
    // SAFETY: a fat binary's header has 16 bytes.
    let header = unsafe { std::slice::from_raw_parts(fatbin, 16) };
    let size = u64::from(word16(header, 6)).checked_add(word64(header, 8));
    let size = size
        .filter(|&size| size <= MOST)
        .ok_or(CUresult::CUDA_ERROR_INVALID_IMAGE)?;
    // SAFETY: the header says that the fat binary has so many bytes.
    select(
        unsafe { std::slice::from_raw_parts(fatbin, size as usize) },
        capability,
    )
}

/// An entry of a fat binary.
struct Entry<'a> {
    kind: u16,
    capability: u32,
    flags: u64,
    payload: &'a [u8],
    unpacked: u64,
}

/// The PTX for the newest architecture that the device can run.
fn select(fatbin: &[u8], capability: u32) -> Result<Vec<u8>> {
    let entries = entries(fatbin).ok_or(CUresult::CUDA_ERROR_INVALID_IMAGE)?;
    let fitting = entries
        .iter()
        .filter(|entry| entry.kind == KIND_PTX && entry.capability <= capability);
    let best = fitting.max_by_key(|entry| entry.capability);
    let mut text = best.ok_or(CUresult::CUDA_ERROR_NO_BINARY_FOR_GPU)?.text()?;
    let end = text
        .iter()
        .position(|&byte| byte == 0)
        .unwrap_or(text.len());
    text.truncate(end);
    Ok(text)
}

/// All entries; `None` where sizes do not fit into each other.
fn entries(fatbin: &[u8]) -> Option<Vec<Entry<'_>>> {
    let header = usize::from(word16(fatbin.get(..16)?, 6));
    if word16(fatbin, 4) != 1 || header < 16 {
        return None;
    }
    let size = usize::try_from(word64(fatbin, 8)).ok()?;
    let mut rest = fatbin.get(header..header.checked_add(size)?)?;
    let mut found = Vec::new();
    while rest.len() >= 64 {
        let header = u32::from_le_bytes(rest[4..8].try_into().ok()?) as usize;
        let padded = usize::try_from(word64(rest, 8)).ok()?;
        let packed = u32::from_le_bytes(rest[16..20].try_into().ok()?) as usize;
        let flags = word64(rest, 40);
        let unpacked = word64(rest, 56);
        let next = header.checked_add(padded)?;
        let payload = rest.get(header..next)?;
        let compressed = flags & (COMPRESSED_LZ4 | COMPRESSED_ZSTD) != 0;
        found.push(Entry {
            kind: word16(rest, 0),
            capability: u32::from_le_bytes(rest[28..32].try_into().ok()?),
            flags,
            payload: if compressed {
                payload.get(..packed)?
            } else {
                payload
            },
            unpacked,
        });
        if next == 0 {
            return None;
        }
        rest = &rest[next..];
    }
    Some(found)
}

impl Entry<'_> {
    fn text(&self) -> Result<Vec<u8>> {
        let text = if self.flags & COMPRESSED_LZ4 != 0 {
            unpack_lz4(self.payload, self.unpacked)
        } else if self.flags & COMPRESSED_ZSTD != 0 {
            unpack_zstd(self.payload, self.unpacked)
        } else {
            Some(self.payload.to_vec())
        };
        text.ok_or(CUresult::CUDA_ERROR_INVALID_IMAGE)
    }
}

fn unpack_zstd(packed: &[u8], size: u64) -> Option<Vec<u8>> {
    let decoder = ruzstd::decoding::StreamingDecoder::new(packed).ok()?;
    let mut text = Vec::new();
    decoder.take(size.min(MOST)).read_to_end(&mut text).ok()?;
    Some(text)
}

/// An LZ4 block: literals, then a copy of what was unpacked before, until the block ends after
/// literals.
fn unpack_lz4(packed: &[u8], size: u64) -> Option<Vec<u8>> {
    let size = usize::try_from(size.min(MOST)).ok()?;
    let mut text = Vec::new();
    let mut bytes = packed.iter().copied();
    // A length of 15 goes on in the following bytes, as long as they are 255.
    let length = |nibble: u8, bytes: &mut dyn Iterator<Item = u8>| -> Option<usize> {
        let mut length = usize::from(nibble);
        let mut more = nibble == 15;
        while more {
            let byte = bytes.next()?;
            length += usize::from(byte);
            more = byte == 255;
        }
        Some(length)
    };
    while let Some(token) = bytes.next() {
        let literals = length(token >> 4, &mut bytes)?;
        if literals > bytes.len() || text.len() + literals > size {
            return None;
        }
        text.extend(bytes.by_ref().take(literals));
        let Some(low) = bytes.next() else { break };
        let distance = usize::from(u16::from_le_bytes([low, bytes.next()?]));
        let copied = length(token & 15, &mut bytes)? + 4;
        let from = text.len().checked_sub(distance).filter(|_| distance > 0)?;
        if text.len() + copied > size {
            return None;
        }
        for index in from..from + copied {
            text.push(text[index]);
        }
    }
    Some(text)
}

fn word16(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

fn word64(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(std::array::from_fn(|index| bytes[at + index]))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A fat binary of entries: kind, capability, flags, unpacked size, payload.
    fn fatbin(entries: &[(u16, u32, u64, u64, &[u8])]) -> Vec<u8> {
        let mut body = Vec::new();
        for (kind, capability, flags, unpacked, payload) in entries {
            let padded = payload.len().next_multiple_of(8);
            body.extend(kind.to_le_bytes());
            body.extend(0x101u16.to_le_bytes());
            body.extend(64u32.to_le_bytes());
            body.extend((padded as u64).to_le_bytes());
            body.extend((payload.len() as u32).to_le_bytes());
            body.extend([0; 8]);
            body.extend(capability.to_le_bytes());
            body.extend([0; 8]);
            body.extend(flags.to_le_bytes());
            body.extend([0; 8]);
            body.extend(unpacked.to_le_bytes());
            body.extend(*payload);
            body.resize(body.len() + padded - payload.len(), 0);
        }
        let mut fatbin = FATBIN.to_le_bytes().to_vec();
        fatbin.extend(1u16.to_le_bytes());
        fatbin.extend(16u16.to_le_bytes());
        fatbin.extend((body.len() as u64).to_le_bytes());
        fatbin.extend(body);
        fatbin
    }

    #[test]
    fn the_newest_ptx_that_fits_is_taken() {
        let image = fatbin(&[
            (2, 90, 0, 0, b"machine code"),
            (1, 52, 0, 0, b"old"),
            (1, 80, 0, 0, b"fits\0"),
            (1, 100, 0, 0, b"too new"),
        ]);
        assert_eq!(read_sized(&image, 90).unwrap(), b"fits");
        // SAFETY: the image is complete.
        assert_eq!(unsafe { read(image.as_ptr(), 90) }.unwrap(), b"fits");
        let mut wrapper = WRAPPER.to_le_bytes().to_vec();
        wrapper.extend(1u32.to_le_bytes());
        wrapper.extend((image.as_ptr() as u64).to_le_bytes());
        // SAFETY: the wrapper points at a complete image.
        assert_eq!(unsafe { read(wrapper.as_ptr(), 75) }.unwrap(), b"old");
    }

    #[test]
    fn code_for_a_real_device_alone_does_not_load() {
        let image = fatbin(&[(2, 90, 0, 0, b"machine code")]);
        assert_eq!(
            read_sized(&image, 90),
            Err(CUresult::CUDA_ERROR_NO_BINARY_FOR_GPU)
        );
        let mut elf = [0; 64];
        elf[..5].copy_from_slice(b"\x7fELF\x02");
        assert_eq!(
            read_sized(&elf, 90),
            Err(CUresult::CUDA_ERROR_INVALID_IMAGE)
        );
        elf[18] = 190;
        assert_eq!(
            read_sized(&elf, 90),
            Err(CUresult::CUDA_ERROR_NO_BINARY_FOR_GPU)
        );
    }

    #[test]
    fn lz4_unpacks_literals_and_overlapping_copies() {
        // "ab", then 9 bytes from 2 back, then "!" as the last literals.
        let packed = [0x25, b'a', b'b', 2, 0, 0x10, b'!'];
        assert_eq!(unpack_lz4(&packed, 100).unwrap(), b"abababababa!");
        assert_eq!(unpack_lz4(&packed, 5), None, "more than it said");
        assert_eq!(
            unpack_lz4(&[0x25, b'a', b'b', 3, 0], 100),
            None,
            "from before the start"
        );
        assert_eq!(unpack_lz4(&[0xf0, 255, 255], 1 << 40), None, "cut short");
    }

    #[test]
    fn broken_headers_are_invalid_images() {
        let whole = fatbin(&[
            (1, 80, COMPRESSED_ZSTD, 9, b"not zstd"),
            (1, 50, COMPRESSED_LZ4, 9, b"\x90abc"),
        ]);
        for cut in 4..whole.len() {
            assert!(read_sized(&whole[..cut], 90).is_err());
        }
        assert_eq!(
            read_sized(&whole, 90),
            Err(CUresult::CUDA_ERROR_INVALID_IMAGE)
        );
        assert_eq!(
            read_sized(&whole, 60),
            Err(CUresult::CUDA_ERROR_INVALID_IMAGE)
        );
        let mut endless = fatbin(&[(1, 80, 0, 0, b"")]);
        endless[16 + 4..16 + 8].fill(0);
        assert_eq!(
            read_sized(&endless, 90),
            Err(CUresult::CUDA_ERROR_INVALID_IMAGE)
        );
    }
}
