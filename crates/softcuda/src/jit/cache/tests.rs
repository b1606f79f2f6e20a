//! Kernels that come back from the cache, and everything that may be wrong with its files.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Barrier};
use std::time::{Duration, SystemTime};

use tempfile::TempDir;

use super::*;
use crate::grid::context::Mode;
use crate::grid::launch::FaultKind;
use crate::jit::code::Code;
use crate::jit::compile::{self, How};
use crate::jit::harness::{self, buffer};
use crate::jit::module::{Form, LoadOptions, Module};
use crate::jit::spmd::Rows;

/// What a cache may take in most tests.
const PLENTY: u64 = 64 << 20;

/// A way to compile.
fn how(mode: Mode, vectors: bool) -> How {
    How {
        mode,
        vectors,
        rows: Rows::Any,
    }
}

/// A folder that nobody else may use.
fn private() -> TempDir {
    let mut builder = tempfile::Builder::new();
    let builder = builder.permissions(Permissions::from_mode(0o700));
    builder
        .tempdir()
        .expect("there is room for temporary files")
}

/// Such a folder, and a cache in it.
fn cache(size: u64) -> (TempDir, &'static Cache) {
    let folder = private();
    let cache = open(folder.path(), size);
    (folder, cache)
}

fn open(folder: &Path, size: u64) -> &'static Cache {
    let cache = Cache::open(folder.to_owned(), size).expect("the folder is ours alone");
    Box::leak(Box::new(cache))
}

fn load_as(source: &str, cache: &'static Cache, form: Form) -> Arc<Module> {
    let options = LoadOptions {
        form,
        cache: Some(cache),
        ..LoadOptions::default()
    };
    Module::load(source.as_bytes(), &options).unwrap_or_else(|error| panic!("{}", error.log))
}

fn load(source: &str, cache: &'static Cache) -> Arc<Module> {
    load_as(source, cache, Form::of_environment())
}

/// The files of a cache.
fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).expect("the folder is there");
    entries
        .map(|entry| entry.expect("the folder can be read").path())
        .collect()
}

/// A kernel that stores a number; one of so many bytes of machine code at least.
fn small(number: u32) -> String {
    harness::module(&format!(
        ".visible .entry k(.param .u64 out) {{
            .reg .b64 %rd<2>;
            ld.param.u64 %rd1, [out];
            st.global.u32 [%rd1], {number};
            ret;
        }}"
    ))
}

/// What a kernel made by [`small`] stores.
fn stored(module: &Arc<Module>) -> u32 {
    let mut out = [0u32];
    harness::run_in(module, "k", [1; 3], [1; 3], 0, &mut [buffer(&mut out)], &[])
        .expect("the kernel only stores");
    out[0]
}

fn is_cached(module: &Module) -> bool {
    module.kernels()[0]
        .is_cached()
        .expect("the kernel was compiled")
}

/// Everything that code has addresses of: variables, functions called by their address, from an
/// initializer and from the code; functions called directly; places where threads wait; accesses
/// that are looked up; runtime functions. `k` stores `table[tid % 2](tid) + bias` through a shared
/// tile that it reads in reverse.
const EVERYTHING: &str = "
    .global .align 8 .u64 table[2] = {first, second};
    .const .u32 bias[3] = {7, 1000, 9};
    .global .u32 count;
    .func (.param .b32 r) more(.param .b32 x)
    {
        .reg .b32 %r<3>;
        ld.param.u32 %r1, [x];
        add.u32 %r2, %r1, 1;
        st.param.b32 [r], %r2;
        ret;
    }
    .func (.param .b32 r) first(.param .b32 x)
    {
        .reg .b32 %r<3>;
        ld.param.u32 %r1, [x];
        { .param .b32 a; .param .b32 b; st.param.b32 [a], %r1; call (b), more, (a);
          ld.param.b32 %r2, [b]; }
        st.param.b32 [r], %r2;
        ret;
    }
    .func (.param .b32 r) second(.param .b32 x)
    {
        .reg .b32 %r<3>;
        .reg .f32 %f<3>;
        ld.param.u32 %r1, [x];
        cvt.rn.f32.u32 %f1, %r1;
        sin.approx.f32 %f2, %f1;
        mul.lo.u32 %r2, %r1, 10;
        st.param.b32 [r], %r2;
        ret;
    }
    .visible .entry k(.param .u64 out)
    {
        .reg .b32 %r<12>;
        .reg .b64 %rd<12>;
        .shared .align 4 .b32 tile[64];
        proto: .callprototype (.param .b32 _) _ (.param .b32 _);
        mov.u32 %r1, %tid.x;
        and.b32 %r2, %r1, 1;
        mov.u64 %rd1, table;
        mad.wide.u32 %rd2, %r2, 8, %rd1;
        ld.global.u64 %rd3, [%rd2];
        { .param .b32 a; .param .b32 b; st.param.b32 [a], %r1; call (b), %rd3, (a), proto;
          ld.param.b32 %r3, [b]; }
        ld.const.u32 %r4, [bias+4];
        add.u32 %r5, %r3, %r4;
        mov.u32 %r6, tile;
        mad.lo.u32 %r7, %r1, 4, %r6;
        st.shared.u32 [%r7], %r5;
        bar.sync 0;
        xor.b32 %r8, %r1, 63;
        mad.lo.u32 %r9, %r8, 4, %r6;
        ld.shared.u32 %r10, [%r9];
        ld.param.u64 %rd4, [out];
        mad.wide.u32 %rd5, %r1, 4, %rd4;
        st.global.u32 [%rd5], %r10;
        atom.global.add.u32 %r11, [count], 1;
        ret;
    }";

/// Runs it, and looks at what it leaves.
fn run_everything(module: &Arc<Module>) {
    let mut out = [0u32; 64];
    harness::run_in(
        module,
        "k",
        [1; 3],
        [64, 1, 1],
        0,
        &mut [buffer(&mut out)],
        &[],
    )
    .expect("every access is inside");
    for (at, found) in (0u32..).zip(out) {
        let from = at ^ 63;
        let called = if from % 2 == 0 { from + 1 } else { from * 10 };
        assert_eq!(found, called + 1000, "thread {at}");
    }
    let (address, _) = module.global("count").expect("the module has it");
    let mut count = [0; 4];
    // SAFETY: the variable has four bytes, and no launch is in flight.
    unsafe { crate::memory::access::read(address, &mut count) };
    assert_eq!(
        u32::from_le_bytes(count),
        64,
        "each module has variables of its own"
    );
}

#[test]
fn kernels_come_back() {
    let source = harness::module(EVERYTHING);
    for form in [Form::Vectors, Form::Rounds, Form::Fibers] {
        let (folder, cache) = cache(PLENTY);
        for cached in [false, true, true] {
            let module = load_as(&source, cache, form);
            run_everything(&module);
            assert_eq!(is_cached(&module), cached);
        }
        let again = load_as(&source, open(folder.path(), PLENTY), form);
        run_everything(&again);
        assert!(is_cached(&again));
        assert_eq!(files(folder.path()).len(), 1);
    }
}

/// Warp operations and barriers wait in rounds, at places whose list is kept with the code.
#[test]
fn kernels_that_wait_come_back() {
    let source = harness::module(
        ".visible .entry k(.param .u64 out)
        {
            .reg .b32 %r<12>;
            .reg .b64 %rd<4>;
            .reg .pred %p<3>;
            .shared .align 4 .b32 sums[2];
            mov.u32 %r1, %tid.x;
            mov.u32 %r2, %r1;
            mov.u32 %r3, 16;
        again:
            shfl.sync.bfly.b32 %r4, %r2, %r3, 31, -1;
            add.u32 %r2, %r2, %r4;
            shr.u32 %r3, %r3, 1;
            setp.ne.u32 %p1, %r3, 0;
            @%p1 bra again;
            shr.u32 %r5, %r1, 5;
            mov.u32 %r6, sums;
            mad.lo.u32 %r7, %r5, 4, %r6;
            and.b32 %r8, %r1, 31;
            setp.eq.u32 %p2, %r8, 0;
            @%p2 st.shared.u32 [%r7], %r2;
            bar.sync 1, 64;
            ld.shared.u32 %r9, [sums];
            ld.shared.u32 %r10, [sums+4];
            add.u32 %r11, %r9, %r10;
            ld.param.u64 %rd1, [out];
            mad.wide.u32 %rd2, %r1, 4, %rd1;
            st.global.u32 [%rd2], %r11;
            ret;
        }",
    );
    let (_folder, cache) = cache(PLENTY);
    for form in [Form::Vectors, Form::Rounds, Form::Fibers] {
        for cached in [false, true] {
            let module = load_as(&source, cache, form);
            let mut out = [0u32; 64];
            let buffers = &mut [buffer(&mut out)];
            harness::run_in(&module, "k", [1; 3], [64, 1, 1], 0, buffers, &[])
                .expect("every access is inside");
            assert_eq!(out, [63 * 64 / 2; 64]);
            assert_eq!(is_cached(&module), cached);
        }
    }
}

#[test]
fn faults_name_their_thread() {
    let source = harness::module(
        ".visible .entry k(.param .u64 out)
        {
            .reg .b32 %r<3>;
            .reg .b64 %rd<4>;
            .reg .pred %p<2>;
            mov.u32 %r1, %tid.x;
            ld.param.u64 %rd1, [out];
            mad.wide.u32 %rd2, %r1, 4, %rd1;
            setp.eq.u32 %p1, %r1, 13;
            @%p1 mov.u64 %rd2, 0x40;
            st.global.u32 [%rd2], %r1;
            ret;
        }",
    );
    let (_folder, cache) = cache(PLENTY);
    for cached in [false, true] {
        let module = load(&source, cache);
        let mut out = [0u32; 64];
        let buffers = &mut [buffer(&mut out)];
        let fault = harness::run_in(&module, "k", [1; 3], [64, 1, 1], 0, buffers, &[]);
        let fault = fault.expect_err("a thread stores where nothing is");
        assert_eq!(fault.kind, FaultKind::IllegalAddress);
        assert_eq!(fault.thread, Some([13, 0, 0]));
        assert_eq!(fault.access, Some((0x40, 4)));
        assert_eq!(is_cached(&module), cached);
    }
}

#[test]
fn kernels_of_one_name_do_not_mix() {
    let (folder, cache) = cache(PLENTY);
    for cached in [false, true] {
        for number in [1, 2, 3] {
            let module = load(&small(number), cache);
            assert_eq!(stored(&module), number);
            assert_eq!(is_cached(&module), cached);
        }
    }
    assert_eq!(files(folder.path()).len(), 3);
}

/// Whatever may change the code changes the key.
#[test]
fn keys_tell_kernels_apart() {
    let plain = LoadOptions::default();
    let mut names = vec![];
    let fibers = LoadOptions {
        form: Form::Fibers,
        ..plain
    };
    let older = LoadOptions {
        capability: 80,
        ..plain
    };
    for source in [
        Source::of(b"a", &plain),
        Source::of(b"b", &plain),
        Source::of(b"a", &older),
        Source::of(b"a", &fibers),
    ] {
        use Mode::*;
        names.push(Key::new(&source, 0, "k", how(Loop, true)).name());
        names.push(Key::new(&source, 0, "k", how(Loop, false)).name());
        names.push(Key::new(&source, 0, "k", how(Rounds, true)).name());
        for rows in [Rows::OfWarps, Rows::Across] {
            let how = How {
                rows,
                ..how(Rounds, true)
            };
            names.push(Key::new(&source, 0, "k", how).name());
        }
        names.push(Key::new(&source, 1, "k", how(Loop, true)).name());
        names.push(Key::new(&source, 0, "l", how(Loop, true)).name());
    }
    let count = names.len();
    names.sort();
    names.dedup();
    assert_eq!(names.len(), count);
}

/// The kernel of [`small`] as an object, and its key.
fn object() -> (Key, Object, Arc<Module>) {
    let (folder, cache) = cache(PLENTY);
    let source = small(5);
    let module = load(&source, cache);
    stored(&module);
    let options = LoadOptions {
        cache: Some(cache),
        ..LoadOptions::default()
    };
    let source = Source::of(source.as_bytes(), &options);
    let vectors = options.form == Form::Vectors;
    let key = Key::new(&source, 0, "k", how(Mode::Loop, vectors));
    assert_eq!(files(folder.path()), [folder.path().join(key.name())]);
    let object = cache.get(&key).expect("it was kept");
    (key, object, module)
}

#[test]
fn damage_is_noticed() {
    let (key, object, module) = object();
    let whole = pack(&key, &object);
    assert!(unpack(&key, &whole).is_some());
    let mut damaged = whole.clone();
    for at in 0..whole.len() {
        for bit in [0, 7] {
            damaged[at] ^= 1 << bit;
            assert!(unpack(&key, &damaged).is_none(), "byte {at}");
            damaged[at] = whole[at];
        }
        assert!(unpack(&key, &whole[..at]).is_none(), "{at} bytes");
    }
    damaged.push(0);
    assert!(unpack(&key, &damaged).is_none());
    // Under another name.
    let other = Source::of(b"", &LoadOptions::default());
    let other = Key::new(&other, 0, "k", how(Mode::Loop, true));
    assert!(unpack(&other, &whole).is_none());

    // Of another format, and whole.
    let mut foreign = whole[..whole.len() - HASH].to_vec();
    foreign[7] = b'2';
    let hash = Sha256::digest(&foreign);
    foreign.extend_from_slice(&hash);
    assert!(unpack(&key, &foreign).is_none());

    // Nor does damage crash what reads objects, were no hash there.
    let bytes = object.to_bytes();
    for at in 0..bytes.len() {
        for value in [0, 1, 0x7f, 0xff, bytes[at] ^ 0x10] {
            let mut damaged = bytes.clone();
            damaged[at] = value;
            if let Some(object) = Object::of_bytes(&damaged) {
                // The code is not run.
                drop(Code::load(object, module.program()));
            }
        }
        assert!(Object::of_bytes(&bytes[..at]).is_none());
    }
}

#[test]
fn what_is_wrong_is_replaced() {
    let (folder, cache) = cache(PLENTY);
    let source = small(9);
    assert_eq!(stored(&load(&source, cache)), 9);
    let path = files(folder.path()).remove(0);
    let whole = fs::read(&path).expect("the file is ours");
    let expect_replaced = |what: &str| {
        let module = load(&source, cache);
        assert_eq!(stored(&module), 9, "{what}");
        assert!(!is_cached(&module), "{what}");
        assert!(
            fs::read(&path).expect("the file is ours") == whole,
            "{what}"
        );
        let module = load(&source, cache);
        assert_eq!(stored(&module), 9, "{what}");
        assert!(is_cached(&module), "{what}");
    };
    fs::write(&path, &whole[..whole.len() / 2]).expect("the file is ours");
    expect_replaced("half a file");
    fs::write(&path, []).expect("the file is ours");
    expect_replaced("an empty file");
    let mut flipped = whole.clone();
    flipped[whole.len() / 2] ^= 4;
    fs::write(&path, flipped).expect("the file is ours");
    expect_replaced("a flipped bit");
    fs::set_permissions(&path, Permissions::from_mode(0o644)).expect("the file is ours");
    expect_replaced("a file that others may read");
    let elsewhere = private();
    let elsewhere = elsewhere.path().join("kernel");
    fs::rename(&path, &elsewhere).expect("both folders are ours");
    symlink(&elsewhere, &path).expect("the folder is ours");
    expect_replaced("a link");
    fs::remove_file(&path).expect("the file is ours");
    expect_replaced("no file");
}

#[test]
fn folders_that_others_may_enter_are_not_used() {
    let folder = private();
    for mode in [0o755, 0o770, 0o701, 0o777] {
        fs::set_permissions(folder.path(), Permissions::from_mode(mode)).expect("it is ours");
        assert!(
            Cache::open(folder.path().to_owned(), PLENTY).is_err(),
            "{mode:o}"
        );
    }
    fs::set_permissions(folder.path(), Permissions::from_mode(0o700)).expect("it is ours");
    let file = folder.path().join("file");
    fs::write(&file, "").expect("the folder is ours");
    assert!(Cache::open(file, PLENTY).is_err());
    let link = folder.path().join("link");
    symlink(folder.path(), &link).expect("the folder is ours");
    assert!(Cache::open(link, PLENTY).is_err());
    let new = folder.path().join("a/b");
    open(&new, PLENTY);
    let mode = fs::metadata(&new)
        .expect("it was made")
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o700);
}

#[test]
fn a_folder_that_cannot_be_written_serves_what_it_has() {
    let (folder, cache) = cache(PLENTY);
    assert_eq!(stored(&load(&small(1), cache)), 1);
    fs::set_permissions(folder.path(), Permissions::from_mode(0o500)).expect("it is ours");
    let reader = open(folder.path(), PLENTY);
    let module = load(&small(1), reader);
    assert_eq!(stored(&module), 1);
    assert!(is_cached(&module));
    assert_eq!(stored(&load(&small(2), reader)), 2);
    fs::set_permissions(folder.path(), Permissions::from_mode(0o700)).expect("it is ours");
    // Nor one that is gone.
    drop(folder);
    assert_eq!(stored(&load(&small(1), cache)), 1);
    assert_eq!(stored(&load(&small(3), cache)), 3);
}

#[test]
fn what_was_used_longest_ago_goes_first() {
    let (key, object, _module) = object();
    let length = pack(&key, &object).len() as u64;
    let size = 20 * length;
    let (folder, cache) = cache(size);
    let keys: Vec<Key> = (0u32..60)
        .map(|number| {
            let source = Source::of(&number.to_le_bytes(), &LoadOptions::default());
            Key::new(&source, 0, "k", how(Mode::Loop, true))
        })
        .collect();
    let other = folder.path().join("of the user");
    fs::write(&other, [0; 1000]).expect("the folder is ours");
    for (number, key) in keys.iter().enumerate() {
        cache.put(key, &object);
        assert!(cache.get(&keys[0]).is_some(), "it is used all the time");
        let files = files(folder.path());
        let of_ours = files.iter().filter(|path| **path != other);
        let total: u64 = of_ours
            .map(|path| fs::metadata(path).expect("it is there").len())
            .sum();
        assert!(total <= size, "{total} bytes after {number}");
    }
    assert!(cache.get(&keys[1]).is_none());
    assert!(cache.get(keys.last().expect("there are keys")).is_some());
    assert!(other.exists());

    // What a process left that died.
    let left = |name: &str, age: u64| {
        let path = folder.path().join(format!("{}.{name}", keys[1].name()));
        let file = fs::File::create(&path).expect("the folder is ours");
        let time = SystemTime::now() - Duration::from_secs(age);
        file.set_modified(time).expect("the file is ours");
        path
    };
    let (old, new) = (left("1.2", 7200), left("1.3", 1));
    open(folder.path(), size).put(&keys[1], &object);
    assert!(!old.exists());
    assert!(new.exists());
    assert!(other.exists());
    // A kernel that is larger than all files may be is not kept.
    let tiny = private();
    let cache = open(tiny.path(), length - 1);
    cache.put(&keys[0], &object);
    assert!(files(tiny.path()).is_empty());
}

#[test]
fn threads_share_a_folder() {
    let (folder, first) = cache(PLENTY);
    let second = open(folder.path(), PLENTY);
    let start = Barrier::new(8);
    std::thread::scope(|scope| {
        for thread in 0..8u32 {
            let start = &start;
            scope.spawn(move || {
                start.wait();
                for number in 0..16 {
                    let cache = if thread % 2 == 0 { first } else { second };
                    assert_eq!(stored(&load(&small(number), cache)), number);
                }
            });
        }
    });
    assert_eq!(files(folder.path()).len(), 16);
    for number in 0..16 {
        let module = load(&small(number), first);
        assert_eq!(stored(&module), number);
        assert!(is_cached(&module));
    }
}

/// Code that is compiled twice is the same to the byte: it holds no address and nothing else of the
/// process that compiled it.
#[test]
fn compiling_again_gives_the_same_object() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../kernels/ptx");
    let texts = [
        "function_pointers",
        "reduce",
        "printf_assert",
        "histogram",
        "softmax",
    ]
    .map(|name| folder.join(name).with_extension("ptx"))
    .map(|path| fs::read_to_string(path).expect("the kernels are there"));
    for text in texts.into_iter().chain([harness::module(EVERYTHING)]) {
        let compile = |at: usize| {
            let module = harness::load(&text);
            let kernel = &module.kernels()[at];
            let mode = kernel.compile().expect("it compiles").mode;
            let program = module.shared_program();
            let object = compile::compile(&program, kernel.function(), how(mode, true));
            object.expect("it compiles").to_bytes()
        };
        for at in 0..harness::load(&text).kernels().len() {
            assert!(compile(at) == compile(at), "kernel {at} of\n{text}");
        }
    }
}
