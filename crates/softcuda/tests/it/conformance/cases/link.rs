//! The linker: what it makes of symbols that are not there or are there twice, its log, and what
//! it takes from objects and archives.

use std::ffi::{CStr, CString, c_void};
use std::ptr::{null, null_mut};

use crate::conformance::api::*;
use crate::conformance::case::{Case, Line, alone};
use crate::conformance::fixture::*;

const HEAD: &str = ".version 7.8\n.target sm_80\n.address_size 64\n";

const USER: &str = ".extern .func (.param .b32 r) twice(.param .b32 x);
.visible .entry user(.param .u64 out)
{
    .reg .b64 %d<3>;
    .reg .b32 %r<3>;
    ld.param.u64 %d1, [out];
    cvta.to.global.u64 %d2, %d1;
    mov.u32 %r1, 21;
    {
    .param .b32 x;
    .param .b32 r;
    st.param.b32 [x], %r1;
    call (r), twice, (x);
    ld.param.b32 %r2, [r];
    }
    st.global.u32 [%d2], %r2;
    ret;
}
";
const TWICE: &str = ".visible .func (.param .b32 r) twice(.param .b32 x)
{
    .reg .b32 %r<3>;
    ld.param.b32 %r1, [x];
    add.s32 %r2, %r1, %r1;
    st.param.b32 [r], %r2;
    ret;
}
";
const SEVERAL: &str = ".extern .func second();
.extern .func first();
.extern .func unused();
.extern .global .u32 state;
.visible .entry one() { call first; ret; }
.visible .entry two()
{
    .reg .b32 %r<2>;
    call second;
    call first;
    ld.global.u32 %r1, [state];
    ret;
}
";

mod input {
    pub const CUBIN: u32 = 0;
    pub const PTX: u32 = 1;
    pub const FATBINARY: u32 = 2;
    pub const OBJECT: u32 = 3;
    pub const LIBRARY: u32 = 4;
}

/// A link with its error log.
struct Link {
    state: Handle,
    /// Say whether calls fail alone: how they do depends on what the process linked before.
    coarse: bool,
    /// What the log has in the place of a path.
    path: Option<String>,
    log: Box<[u8; 4096]>,
}

impl Link {
    unsafe fn new() -> Link {
        let (mut state, mut log) = (0, Box::new([0u8; 4096]));
        let mut values = [log.as_mut_ptr().cast(), 4096 as *mut c_void];
        // An error log and its size.
        cuLinkCreate_v2(2, [5, 6].as_mut_ptr(), values.as_mut_ptr(), &mut state).must();
        Link {
            state,
            coarse: false,
            path: None,
            log,
        }
    }

    unsafe fn add(&self, kind: u32, data: &[u8], name: Option<&CStr>) -> Answer {
        cuLinkAddData_v2(
            self.state,
            kind,
            data.as_ptr().cast_mut().cast(),
            data.len(),
            name.map_or(null(), CStr::as_ptr),
            0,
            null_mut(),
            null_mut(),
        )
    }

    unsafe fn text(&self, body: &str, name: Option<&CStr>) -> Answer {
        let text = CString::new(format!("{HEAD}{body}")).expect("no zero byte inside");
        self.add(input::PTX, text.as_bytes_with_nul(), name)
    }

    /// Links, says what the log holds, and runs the kernel where it went well.
    unsafe fn complete(self, line: &mut Line) {
        let (mut image, mut size, mut module) = (null_mut(), 0, 0);
        let linked = line.says_as(
            "complete",
            cuLinkComplete(self.state, &mut image, &mut size),
        );
        let end = self.log.iter().position(|&byte| byte == 0).unwrap_or(4096);
        let mut log = String::from_utf8_lossy(&self.log[..end]).into_owned();
        if let Some(path) = &self.path {
            log = log.replace(path.as_str(), "PATH");
        }
        line.value("log", log.trim_end());
        if linked && line.says_as("load", cuModuleLoadData(&mut module, image)) {
            let mut function = 0;
            if cuModuleGetFunction(&mut function, module, c"user".as_ptr()).code == 0 {
                let mut out = memory(4);
                launch(function, 1, 1, 0, &mut [void(&mut out)]).must();
                line.value("runs", word(out));
            }
        }
        line.says_as("destroy", cuLinkDestroy(self.state));
    }
}

/// A library archive with a host object that holds [`TWICE`] as PTX for compute capability 9.0. It
/// was made by `nvcc -rdc=true -c -gencode arch=compute_90,code=compute_90` of CUDA 13.0 and `ar
/// rc`, from `extern "C" __device__ int twice(int x) { return 2 * x; }`.
const LIBRARY: &[u8] = include_bytes!("../twice.a");

/// The object in it: behind a table, whose size stands in its header, and a header of its own.
fn twice_object() -> &'static [u8] {
    const HEADER: usize = 60;
    let size = |header: &[u8]| -> usize {
        let text = std::str::from_utf8(&header[48..58]).expect("sizes are digits");
        text.trim_end().parse().expect("sizes are digits")
    };
    let table = &LIBRARY[8..];
    let member = &table[HEADER + size(table).next_multiple_of(2)..];
    &member[HEADER..HEADER + size(member)]
}

/// The fat binary in that.
fn twice_fatbin() -> &'static [u8] {
    let object = twice_object();
    let magic = 0xba55_ed50u32.to_le_bytes();
    let start = object
        .windows(4)
        .position(|bytes| bytes == magic)
        .expect("the object has a fat binary");
    let size = object[start + 8..start + 16].try_into().expect("8 bytes");
    &object[start..start + 16 + u64::from_le_bytes(size) as usize]
}

/// A host object with a section of this name.
fn object(section: &str, contents: &[u8]) -> Vec<u8> {
    let names = format!("\0.names\0{section}\0");
    let mut data = vec![0; 64];
    data[..7].copy_from_slice(b"\x7fELF\x02\x01\x01");
    let word16 = |data: &mut [u8], at: usize, value: u16| {
        data[at..at + 2].copy_from_slice(&value.to_le_bytes());
    };
    for (at, value) in [
        (16, 1),
        (18, 62),
        (20, 1),
        (52, 64),
        (58, 64),
        (60, 3),
        (62, 1),
    ] {
        word16(&mut data, at, value);
    }
    let mut places = vec![];
    for bytes in [names.as_bytes(), contents] {
        data.resize(data.len().next_multiple_of(8), 0);
        places.push((data.len() as u64, bytes.len() as u64));
        data.extend(bytes);
    }
    data.resize(data.len().next_multiple_of(8), 0);
    let table = data.len() as u64;
    data[40..48].copy_from_slice(&table.to_le_bytes());
    data.extend([0; 64]);
    for ((start, size), (name, kind)) in places.into_iter().zip([(1u32, 3u32), (8, 1)]) {
        let mut header = [0u8; 64];
        header[..4].copy_from_slice(&name.to_le_bytes());
        header[4..8].copy_from_slice(&kind.to_le_bytes());
        header[8] = if kind == 1 { 2 } else { 0 };
        header[24..32].copy_from_slice(&start.to_le_bytes());
        header[32..40].copy_from_slice(&size.to_le_bytes());
        header[48] = 8;
        data.extend(header);
    }
    data
}

fn archive(members: &[(&str, &[u8])]) -> Vec<u8> {
    let mut archive = b"!<arch>\n".to_vec();
    for (name, data) in members {
        let head = format!(
            "{name:<16}{:<12}{:<6}{:<6}{:<8}{:<10}`\n",
            0,
            0,
            0,
            100644,
            data.len()
        );
        archive.extend(head.into_bytes());
        archive.extend(*data);
        if data.len() % 2 == 1 {
            archive.push(b'\n');
        }
    }
    archive
}

pub const CASES: &[Case] = &[
    alone!("link/undefined", |line| {
        context();
        for name in [Some(c"here.ptx"), Some(c""), None] {
            let link = Link::new();
            line.says_as("user", link.text(USER, name));
            link.complete(line);
        }
        let link = Link::new();
        line.says_as("several", link.text(SEVERAL, Some(c"several")));
        line.says_as("user", link.text(USER, Some(c"user")));
        link.complete(line);
        let link = Link::new();
        let unused = ".extern .func twice();\n.visible .entry k() { ret; }\n";
        line.says_as("unused", link.text(unused, Some(c"unused")));
        link.complete(line);
        let link = Link::new();
        let brought = ".extern .func (.param .b32 r) vprintf(.param .b64 f, .param .b64 a);
            .extern .shared .align 16 .b8 dynamic[];
            .visible .entry k()
            {
                .reg .b64 %d<2>;
                .reg .b32 %r<2>;
                ld.shared.u32 %r1, [dynamic];
                mov.u64 %d1, 0;
                {
                .param .b64 f;
                .param .b64 a;
                .param .b32 r;
                st.param.b64 [f], %d1;
                st.param.b64 [a], %d1;
                call (r), vprintf, (f, a);
                }
                ret;
            }";
        line.says_as("brought", link.text(brought, Some(c"brought")));
        link.complete(line);
    }),
    alone!("link/twice", |line| {
        context();
        let link = Link::new();
        line.says_as("first", link.text(TWICE, Some(c"first")));
        line.says_as("second", link.text(TWICE, Some(c"second")));
        line.says_as("user", link.text(USER, Some(c"user")));
        link.complete(line);
    }),
    alone!("link/weak", |line| {
        context();
        let link = Link::new();
        let weak = TWICE.replace(".visible", ".weak");
        line.says_as("weak", link.text(&weak, Some(c"weak")));
        line.says_as("user", link.text(USER, Some(c"user")));
        line.says_as("strong", link.text(TWICE, Some(c"strong")));
        line.says_as("weak", link.text(&weak, Some(c"weak")));
        link.complete(line);
    }),
    alone!("link/prototype", |line| {
        context();
        let wrong = TWICE
            .replace("(.param .b32 r)", "(.param .b64 r)")
            .replace("st.param.b32 [r], %r2", "st.param.b64 [r], 0");
        for user_first in [true, false] {
            let link = Link::new();
            if user_first {
                line.says_as("user", link.text(USER, Some(c"user")));
            }
            line.says_as("wrong", link.text(&wrong, Some(c"wrong")));
            if !user_first {
                line.says_as("user", link.text(USER, Some(c"user")));
            }
            link.complete(line);
        }
    }),
    alone!("link/prototype/types", |line| {
        context();
        let groups: [&[&str]; 3] = [
            &[".b32 x", ".u32 x", ".s32 x", ".f32 x", ".align 4 .b8 x[4]"],
            &[
                ".b64 x",
                ".u64 x",
                ".s64 x",
                ".f64 x",
                ".align 8 .b8 x[8]",
                ".b32 x[2]",
            ],
            &[
                ".align 4 .b8 x[8]",
                ".align 8 .b8 x[8]",
                ".align 8 .b8 x[9]",
            ],
        ];
        for group in groups {
            for (at, declared) in group.iter().enumerate() {
                for defined in &group[at..] {
                    let user = format!(
                        ".extern .func f(.param {declared});
                        .visible .entry k() {{ .param {declared}; call f, (x); ret; }}\n"
                    );
                    let definition = format!(".visible .func f(.param {defined}) {{ ret; }}\n");
                    let link = Link::new();
                    link.text(&user, Some(c"user")).must();
                    let answer = link.text(&definition, Some(c"definition"));
                    line.says_as(format!("{declared} {defined}"), answer);
                }
            }
        }
    }),
    alone!("link/prototype/results", |line| {
        context();
        let one = "(.param .b32 r) f(.param .b32 x)";
        for (what, first, second) in [
            ("declared", one, "f(.param .b32 x)"),
            ("defined", "f(.param .b32 x)", one),
            (
                "pointer",
                "(.param .b32 r) f(.param .b64 x)",
                "f(.param .b64 x)",
            ),
            ("float", one, "(.param .f32 r) f(.param .b32 x)"),
            (
                "more",
                one,
                "(.param .b32 r) f(.param .b32 x, .param .b32 y)",
            ),
        ] {
            let (results, arguments) = match first.starts_with('(') {
                true => (".param .b32 r;", "(r), f, (x)"),
                false => ("", "f, (x)"),
            };
            let argument = first
                .split_once("f(")
                .map_or("", |(_, rest)| &rest[..rest.len() - 1]);
            let user = format!(
                ".extern .func {first};
                .visible .entry k() {{ {results} {argument}; call {arguments}; ret; }}\n"
            );
            let definition = format!(".visible .func {second} {{ ret; }}\n");
            for user_first in [true, false] {
                let texts = [(&user, c"user"), (&definition, c"definition")];
                let [first, second] = match user_first {
                    true => texts,
                    false => [texts[1], texts[0]],
                };
                let link = Link::new();
                line.value("asks", what);
                line.says_as("first", link.text(first.0, Some(first.1)));
                line.says_as("second", link.text(second.0, Some(second.1)));
                link.complete(line);
            }
        }
    }),
    alone!("link/variable", |line| {
        context();
        for (declared, defined) in [
            (".global .b32 v", ".global .b64 v"),
            (".global .b32 v", ".global .f32 v"),
            (".global .b32 v", ".const .b32 v"),
            (".global .align 4 .b8 v[8]", ".global .align 4 .b8 v[4]"),
            (".global .align 4 .b8 v[8]", ".global .align 8 .b8 v[8]"),
            (".global .align 4 .b8 v[]", ".global .align 4 .b8 v[4]"),
            (".global .align 4 .b8 v[4]", ".global .b32 v"),
        ] {
            let user = format!(
                ".extern {declared};
                .visible .entry k()
                {{
                    .reg .b32 %r<2>;
                    ld.global.u32 %r1, [v];
                    st.global.u32 [v], %r1;
                    ret;
                }}\n"
            );
            let definition = format!(".visible {defined};\n");
            for user_first in [true, false] {
                let texts = [(&user, c"user"), (&definition, c"definition")];
                let [first, second] = match user_first {
                    true => texts,
                    false => [texts[1], texts[0]],
                };
                let link = Link::new();
                line.value("declared", declared);
                line.value("defined", defined);
                line.says_as("first", link.text(first.0, Some(first.1)));
                line.says_as("second", link.text(second.0, Some(second.1)));
                link.complete(line);
            }
        }
    }),
    // With the library they are there: `execution::linking` asks for that.
    alone!("link/device_runtime", |line| {
        context();
        let text = ".extern .func (.param .b64 r) cudaCGGetIntrinsicHandle(.param .b32 s);
            .extern .func (.param .b32 r) cudaCGSynchronize(.param .b64 h, .param .b32 f);
            .visible .entry k()
            {
                .param .b32 s;
                .param .b64 h;
                .param .b32 r;
                st.param.b32 [s], 1;
                call (h), cudaCGGetIntrinsicHandle, (s);
                call (r), cudaCGSynchronize, (h, s);
                ret;
            }
            ";
        let link = Link::new();
        line.says_as("user", link.text(text, Some(c"user")));
        link.complete(line);
        let text = CString::new(format!("{HEAD}{text}")).expect("no zero byte inside");
        let (mut module, mut log) = (0, [0u8; 256]);
        let mut values = [log.as_mut_ptr().cast(), 256 as *mut c_void];
        line.says(cuModuleLoadDataEx(
            &mut module,
            text.as_ptr().cast_mut().cast(),
            2,
            [5, 6].as_mut_ptr(),
            values.as_mut_ptr(),
        ));
        let log = String::from_utf8_lossy(&log);
        line.value("log", log.trim_end_matches('\0').trim_end());
    }),
    alone!("link/syntax", |line| {
        context();
        let link = Link::new();
        line.says_as(
            "wrong",
            link.add(input::PTX, b"no PTX at all\0", Some(c"wrong")),
        );
        line.says_as("user", link.text(USER, Some(c"user")));
        line.says_as("twice", link.text(TWICE, Some(c"twice")));
        let (mut image, mut size) = (null_mut(), 0);
        line.says(cuLinkComplete(link.state, &mut image, &mut size));
        line.says_as("destroy", cuLinkDestroy(link.state));
    }),
    alone!("link/fatbin", |line| {
        context();
        for kind in [input::PTX, input::FATBINARY] {
            let link = Link::new();
            line.says_as("user", link.text(USER, Some(c"user")));
            line.says_as("fatbin", link.add(kind, twice_fatbin(), Some(c"fatbin")));
            link.complete(line);
        }
    }),
    alone!("link/object", |line| {
        context();
        let link = Link::new();
        line.says_as("user", link.text(USER, Some(c"user")));
        line.says_as(
            "object",
            link.add(input::OBJECT, twice_object(), Some(c"object")),
        );
        link.complete(line);
    }),
    alone!("link/object/wrong", |line| {
        context();
        let none = object(".text", b"none");
        for (what, kind, data) in [
            ("object_as_ptx", input::PTX, twice_object()),
            ("object_as_fatbin", input::FATBINARY, twice_object()),
            ("object_as_library", input::LIBRARY, twice_object()),
            ("library_as_object", input::OBJECT, LIBRARY),
            ("no_code", input::OBJECT, &none),
            ("fatbin_as_object", input::OBJECT, twice_fatbin()),
            ("fatbin_as_cubin", input::CUBIN, twice_fatbin()),
        ] {
            let link = Link::new();
            line.says_as("user", link.text(USER, Some(c"user")));
            line.says_as("twice", link.text(TWICE, Some(c"twice")));
            line.says_as(what, link.add(kind, data, Some(c"wrong")));
            link.complete(line);
        }
    }),
    alone!("link/library", |line| {
        context();
        let link = Link::new();
        line.says_as("user", link.text(USER, Some(c"user")));
        line.says_as(
            "library",
            link.add(input::LIBRARY, LIBRARY, Some(c"library")),
        );
        link.complete(line);
        let link = Link::new();
        line.says_as(
            "library",
            link.add(input::LIBRARY, LIBRARY, Some(c"library")),
        );
        line.says_as("user", link.text(USER, Some(c"user")));
        link.complete(line);
    }),
    alone!("link/library/made_here", |line| {
        context();
        let library = archive(&[("a.o/", twice_object())]);
        let link = Link::new();
        line.says_as("user", link.text(USER, Some(c"user")));
        line.says_as(
            "library",
            link.add(input::LIBRARY, &library, Some(c"library")),
        );
        link.complete(line);
    }),
    alone!("link/library/unused", |line| {
        context();
        let mut link = Link::new();
        link.coarse = true;
        line.says_as("several", link.text(SEVERAL, Some(c"several")));
        line.says_as(
            "library",
            link.add(input::LIBRARY, LIBRARY, Some(c"library")),
        );
        link.complete(line);
    }),
    alone!("link/library/twice", |line| {
        context();
        let mut link = Link::new();
        link.coarse = true;
        line.says_as("user", link.text(USER, Some(c"user")));
        line.says_as("twice", link.text(TWICE, Some(c"twice")));
        let answer = link.add(input::LIBRARY, LIBRARY, Some(c"library"));
        line.value("library_fits", answer.code == 0);
        link.complete(line);
    }),
    alone!("link/file", |line| {
        context();
        let folder = tempfile::tempdir().expect("there is room for a file");
        let path = folder.path().join("user.ptx");
        std::fs::write(&path, format!("{HEAD}{USER}\0")).expect("there is room for a file");
        let path = CString::new(path.into_os_string().into_encoded_bytes()).expect("no zero byte");
        let mut link = Link::new();
        line.says(cuLinkAddFile_v2(
            link.state,
            input::PTX,
            path.as_ptr(),
            0,
            null_mut(),
            null_mut(),
        ));
        link.path = Some(path.to_string_lossy().into_owned());
        link.complete(line);
    }),
    alone!("link/library/wrong", |line| {
        context();
        let (host, empty) = (object(".text", b"none"), archive(&[]));
        let text = format!("{HEAD}{TWICE}");
        for (what, data) in [
            ("empty", empty.clone()),
            ("text", archive(&[("a.ptx/", text.as_bytes())])),
            ("fatbin", archive(&[("a.fatbin/", twice_fatbin())])),
            ("host_object", archive(&[("a.o/", &host)])),
            ("other", archive(&[("a.txt/", b"nothing of use")])),
            (
                "no_archive",
                b"something else, as long as a header of an archive is, and longer".to_vec(),
            ),
            ("no_member", [empty, vec![b'x'; 70]].concat()),
        ] {
            let link = Link::new();
            line.says_as("user", link.text(USER, Some(c"user")));
            line.says_as("twice", link.text(TWICE, Some(c"twice")));
            line.says_as(what, link.add(input::LIBRARY, &data, Some(c"library")));
            link.complete(line);
        }
        let link = Link::new();
        line.says_as(
            "no_file",
            cuLinkAddFile_v2(
                link.state,
                input::LIBRARY,
                c"/nowhere/to/be.found".as_ptr(),
                0,
                null_mut(),
                null_mut(),
            ),
        );
        link.complete(line);
    }),
];
