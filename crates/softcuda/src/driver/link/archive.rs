//! Library archives and host objects: where nvcc puts device code that is linked later.
//!
//! An archive holds members one after the other, each behind a header of text. A member with device
//! code is an ELF object for the host; its fat binaries lie in a section of their own.

/// What an archive begins with.
const MAGIC: &[u8] = b"!<arch>\n";
/// A member's header: a name of 16 bytes, the size as text at 48, and a mark at its end.
const HEADER: usize = 60;
const HEADER_END: &[u8] = b"`\n";
/// `e_machine` of machine code for a GPU.
const MACHINE_CUDA: u16 = 190;
/// Sections with fat binaries: of relocatable device code, and of other.
const SECTIONS: [&[u8]; 2] = [b"__nv_relfatbin", b".nv_fatbin"];
/// A fat binary's magic, version and header.
const FATBIN: u32 = 0xba55_ed50;
const FATBIN_HEADER: usize = 16;

/// The data is no archive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NoArchive;

/// A member of an archive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Member<'a> {
    /// Its name; empty where the archive's table of long names lacks it.
    pub name: &'a [u8],
    /// Its bytes.
    pub data: &'a [u8],
}

/// The members of an archive, without its tables. One that is cut short is left out.
pub(super) fn members(archive: &[u8]) -> Result<Vec<Member<'_>>, NoArchive> {
    let mut rest = archive.strip_prefix(MAGIC).ok_or(NoArchive)?;
    let mut members = Vec::new();
    let mut long_names = &[][..];
    while !rest.is_empty() {
        let header = rest.get(..HEADER).ok_or(NoArchive)?;
        if &header[HEADER - 2..] != HEADER_END {
            return Err(NoArchive);
        }
        let size = number(header[48..58].trim_ascii_end()).ok_or(NoArchive)?;
        rest = &rest[HEADER..];
        let Some(data) = rest.get(..size) else { break };
        // The symbol table is called `/` or `/SYM64/`, that of long names `//`, and a long name
        // itself `/` and a number.
        let name = header[..16].trim_ascii_end();
        if name == b"//" {
            long_names = data;
        } else if let Some(size) = name.strip_prefix(b"#1/") {
            // BSD's archives put long names before the data.
            let (name, data) = number(size)
                .and_then(|size| data.split_at_checked(size))
                .ok_or(NoArchive)?;
            let name = name.split(|&byte| byte == 0).next().unwrap_or_default();
            members.push(Member { name, data });
        } else if name != b"/" && name != b"/SYM64/" {
            let name = match name.strip_prefix(b"/") {
                Some(at) => number(at)
                    .and_then(|at| long_names.get(at..))
                    .and_then(|names| names.split(|&byte| byte == b'\n').next())
                    .unwrap_or_default(),
                None => name,
            };
            let name = name.strip_suffix(b"/").unwrap_or(name);
            members.push(Member { name, data });
        }
        // Members begin at even offsets.
        rest = rest.get(size.next_multiple_of(2)..).unwrap_or_default();
    }
    Ok(members)
}

/// A number in decimal digits.
fn number(digits: &[u8]) -> Option<usize> {
    std::str::from_utf8(digits).ok()?.parse().ok()
}

/// What data that should be a host object is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Object<'a> {
    /// A host object, with its fat binaries.
    Host(Vec<&'a [u8]>),
    /// Machine code for a GPU.
    Cubin,
    /// Something else.
    Other,
}

/// Looks into an object.
pub(super) fn object(data: &[u8]) -> Object<'_> {
    match elf(data) {
        Some((MACHINE_CUDA, _)) => Object::Cubin,
        Some((_, sections)) => {
            let fatbins = sections
                .into_iter()
                .filter(|(name, _)| SECTIONS.contains(name))
                .flat_map(|(_, bytes)| fatbins(bytes));
            Object::Host(fatbins.collect())
        }
        None => Object::Other,
    }
}

/// A section: its name and its bytes.
type Section<'a> = (&'a [u8], &'a [u8]);

/// The machine and the sections of a little-endian ELF file of 64 bits; `None` for anything else.
fn elf(data: &[u8]) -> Option<(u16, Vec<Section<'_>>)> {
    let [0x7f, b'E', b'L', b'F', 2, 1, ..] = *data else {
        return None;
    };
    let machine = word16(data, 18)?;
    let (table, count, names) = (
        usize::try_from(word64(data, 40)?).ok()?,
        usize::from(word16(data, 60)?),
        usize::from(word16(data, 62)?),
    );
    let header = |index: usize| {
        let at = table.checked_add(index.checked_mul(64)?)?;
        data.get(at..at.checked_add(64)?)
    };
    let contents = |header: &[u8]| {
        const NO_BITS: u32 = 8;
        if word32(header, 4)? == NO_BITS {
            return Some(&data[..0]);
        }
        let start = usize::try_from(word64(header, 24)?).ok()?;
        let size = usize::try_from(word64(header, 32)?).ok()?;
        data.get(start..start.checked_add(size)?)
    };
    let names = contents(header(names)?)?;
    let mut sections = Vec::new();
    for index in 0..count {
        let header = header(index)?;
        let name = names.get(word32(header, 0)? as usize..)?;
        let end = name.iter().position(|&byte| byte == 0)?;
        sections.push((&name[..end], contents(header)?));
    }
    Some((machine, sections))
}

/// The fat binaries in a section, one after the other, at multiples of eight.
fn fatbins(section: &[u8]) -> Vec<&[u8]> {
    let mut found = Vec::new();
    let mut rest = section;
    while word32(rest, 0) == Some(FATBIN) && rest.len() >= FATBIN_HEADER {
        let header = usize::from(word16(rest, 6).unwrap_or_default());
        let size = word64(rest, 8).and_then(|size| usize::try_from(size).ok());
        let Some(end) = size.and_then(|size| size.checked_add(header)) else {
            break;
        };
        let Some(fatbin) = rest.get(..end) else { break };
        if fatbin.is_empty() {
            break;
        }
        found.push(fatbin);
        rest = rest.get(end.next_multiple_of(8)..).unwrap_or_default();
    }
    found
}

fn word16(data: &[u8], at: usize) -> Option<u16> {
    let bytes = data.get(at..at.checked_add(2)?)?;
    bytes.try_into().ok().map(u16::from_le_bytes)
}

fn word32(data: &[u8], at: usize) -> Option<u32> {
    let bytes = data.get(at..at.checked_add(4)?)?;
    bytes.try_into().ok().map(u32::from_le_bytes)
}

fn word64(data: &[u8], at: usize) -> Option<u64> {
    let bytes = data.get(at..at.checked_add(8)?)?;
    bytes.try_into().ok().map(u64::from_le_bytes)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub fn member(name: &str, data: &[u8]) -> Vec<u8> {
        let mut bytes = format!("{name:<16}{:<32}{:<10}`\n", "", data.len()).into_bytes();
        bytes.extend(data);
        if data.len() % 2 == 1 {
            bytes.push(b'\n');
        }
        bytes
    }

    pub fn archive(members: &[Vec<u8>]) -> Vec<u8> {
        [MAGIC.to_vec(), members.concat()].concat()
    }

    #[test]
    fn members_come_without_tables() {
        let bytes = archive(&[
            member("/", b"symbols"),
            member("//", b"first.o/\na_long_name_for_a_member.o/\n"),
            member("a.o/", b"one"),
            member("/9", b"two!"),
            member("/99", b"3"),
            member("#1/6", b"name\0\0BSD"),
        ]);
        let all = [
            (&b"a.o"[..], &b"one"[..]),
            (b"a_long_name_for_a_member.o", b"two!"),
            (b"", b"3"),
            (b"name", b"BSD"),
        ];
        let all = all.map(|(name, data)| Member { name, data });
        assert_eq!(members(&bytes), Ok(all.to_vec()));
        assert_eq!(members(MAGIC), Ok(Vec::new()));
    }

    #[test]
    fn what_is_cut_or_broken_ends_the_archive() {
        let bytes = archive(&[member("a.o/", b"data!"), member("b.o/", b"more")]);
        for cut in 0..bytes.len() {
            match members(&bytes[..cut]) {
                Ok(found) => assert!(found.len() < 2, "at {cut}"),
                Err(NoArchive) => assert!(cut < bytes.len()),
            }
        }
        assert_eq!(members(b""), Err(NoArchive));
        assert_eq!(members(b"!<thin>\n"), Err(NoArchive));
        let mut broken = bytes.clone();
        broken[MAGIC.len() + 58] = b'x';
        assert_eq!(members(&broken), Err(NoArchive));
        let mut no_number = bytes;
        no_number[MAGIC.len() + 48] = b'x';
        assert_eq!(members(&no_number), Err(NoArchive));
    }

    /// An object with one section beside the table of names.
    pub fn host_object(machine: u16, name: &str, contents: &[u8]) -> Vec<u8> {
        let names = format!("\0{name}\0");
        let mut data = vec![0; 64];
        data[..6].copy_from_slice(b"\x7fELF\x02\x01");
        data[18..20].copy_from_slice(&machine.to_le_bytes());
        let places = [names.as_bytes(), contents].map(|bytes| {
            let at = data.len();
            data.extend(bytes);
            (at as u64, bytes.len() as u64)
        });
        let table = data.len() as u64;
        data[40..48].copy_from_slice(&table.to_le_bytes());
        data[60..62].copy_from_slice(&2u16.to_le_bytes());
        for ((start, size), name) in places.into_iter().zip([0u32, 1]) {
            let mut header = [0; 64];
            header[..4].copy_from_slice(&name.to_le_bytes());
            header[24..32].copy_from_slice(&start.to_le_bytes());
            header[32..40].copy_from_slice(&size.to_le_bytes());
            data.extend(header);
        }
        data
    }

    #[test]
    fn fat_binaries_are_found_in_their_sections() {
        let mut fatbin = FATBIN.to_le_bytes().to_vec();
        fatbin.extend([1, 0, 16, 0, 8, 0, 0, 0, 0, 0, 0, 0]);
        fatbin.extend(b"contents");
        let both = fatbin.repeat(2);
        for name in ["__nv_relfatbin", ".nv_fatbin"] {
            assert_eq!(
                object(&host_object(62, name, &both)),
                Object::Host(vec![fatbin.as_slice(); 2])
            );
        }
        assert_eq!(
            object(&host_object(62, ".text", &both)),
            Object::Host(Vec::new())
        );
        assert_eq!(object(&host_object(190, ".text", b"")), Object::Cubin);
        let whole = host_object(62, ".nv_fatbin", &both);
        for cut in 0..whole.len() {
            assert_eq!(object(&whole[..cut]), Object::Other, "at {cut}");
        }
        let short = host_object(62, ".nv_fatbin", &fatbin[..20]);
        assert_eq!(object(&short), Object::Host(Vec::new()));
    }
}
