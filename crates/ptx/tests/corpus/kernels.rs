// What rustc makes of kernels, without its core library: compiled by generate.sh, not a part of
// this crate.
#![no_std]
#![no_core]
#![feature(no_core, lang_items, abi_ptx, intrinsics, auto_traits, rustc_attrs, asm_experimental_arch, link_llvm_intrinsics)]
#![allow(internal_features)]

#[lang = "pointee_sized"]
pub trait PointeeSized {}
#[lang = "meta_sized"]
pub trait MetaSized: PointeeSized {}
#[lang = "sized"]
pub trait Sized: MetaSized {}
#[lang = "copy"]
pub trait Copy {}
impl Copy for u32 {}
impl Copy for u64 {}
impl Copy for i32 {}
impl Copy for f32 {}
impl Copy for f64 {}
impl Copy for bool {}
impl<T> Copy for *mut T {}
impl<T> Copy for *const T {}
#[lang = "freeze"]
unsafe auto trait Freeze {}
#[lang = "sync"]
unsafe trait Sync {}
unsafe impl Sync for fn(u32) -> u32 {}
unsafe impl<T, const N: usize> Sync for [T; N] {}
#[lang = "add"]
pub trait Add<R = Self> {
    type Output;
    fn add(self, right: R) -> Self::Output;
}
#[lang = "legacy_receiver"]
pub trait Receiver {}
impl<T: PointeeSized> Receiver for &T {}

#[lang = "drop_glue"]
fn drop_glue<T: PointeeSized>(_: &mut T) {}

#[rustc_intrinsic]
pub const unsafe fn unchecked_add<T: Copy>(x: T, y: T) -> T;
#[rustc_intrinsic]
pub const unsafe fn unchecked_mul<T: Copy>(x: T, y: T) -> T;
#[rustc_intrinsic]
pub unsafe fn fadd_fast<T: Copy>(a: T, b: T) -> T;
#[rustc_intrinsic]
pub unsafe fn fmul_fast<T: Copy>(a: T, b: T) -> T;
#[rustc_intrinsic]
pub const unsafe fn arith_offset<T>(pointer: *const T, by: isize) -> *const T;

unsafe extern "C" {
    #[link_name = "llvm.nvvm.read.ptx.sreg.tid.x"]
    fn tid_x() -> i32;
    #[link_name = "llvm.nvvm.barrier0"]
    fn barrier();
    fn vprintf(format: *const u32, arguments: *const u32) -> i32;
}

pub struct Pair {
    pub left: u32,
    pub right: f64,
}

pub struct Wide {
    pub values: [u32; 5],
    pub last: u32,
}

pub struct Links {
    pub first: &'static [u32; 2],
    pub second: &'static [u32; 2],
}
unsafe impl Sync for Links {}

pub static mut TABLE: [u32; 4] = [1, 2, 3, 5];
static NAME: [u32; 2] = [104, 105];
pub static LINKS: Links = Links { first: &NAME, second: &NAME };

#[inline(never)]
pub fn fold(pair: &Pair, times: u32) -> u32 {
    match times {
        0 => pair.left,
        _ => unsafe { unchecked_add(fold(pair, unchecked_add(times, 4294967295)), fold(pair, 0)) },
    }
}

#[inline(never)]
pub fn widen(from: u32) -> Wide {
    Wide { values: [from, 1, 2, 3, 4], last: from }
}

fn twice(x: u32) -> u32 {
    unsafe { unchecked_mul(x, 2) }
}

pub static FUNCTION: fn(u32) -> u32 = twice;

#[unsafe(no_mangle)]
pub unsafe extern "ptx-kernel" fn scale(data: *mut f32, by: f32, pair: Pair, wide: Wide) {
    unsafe {
        let at = arith_offset(data, tid_x() as isize) as *mut f32;
        barrier();
        *at = fadd_fast(fmul_fast(*at, by), pair.right as f32);
        *(&raw mut TABLE as *mut u32) = fold(&pair, wide.last);
        *(at as *mut u32) = widen(FUNCTION(3)).last;
        vprintf(LINKS.first as *const [u32; 2] as *const u32, data as *const u32);
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "ptx-kernel" fn choose(data: *mut u32, which: u32, call: fn(u32) -> u32) {
    unsafe {
        *data = match which {
            0 => 11,
            1 => call(5),
            2 => 33,
            3 => fold(&Pair { left: 3, right: 0.5 }, 2),
            4 => 55,
            5 => 56,
            _ => 1,
        };
    }
}
