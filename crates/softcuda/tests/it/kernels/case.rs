//! A case: buffers, launches over them, and what the buffers must hold afterwards.

use half::{bf16, f16};

/// How the bytes of a buffer read, which decides what makes two of them equal: any two values that
/// are no number are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Bits that must be equal, by their size in bytes.
    Bits(usize),
    F16,
    Bf16,
    F32,
    F64,
}

impl Kind {
    pub fn size(self) -> usize {
        match self {
            Kind::Bits(size) => size,
            Kind::F16 | Kind::Bf16 => 2,
            Kind::F32 => 4,
            Kind::F64 => 8,
        }
    }
}

/// What a buffer is made of.
pub trait Element: Copy {
    const KIND: Kind;
    fn append(self, bytes: &mut Vec<u8>);
}

macro_rules! element {
    ($($type:ty => $kind:expr),+ $(,)?) => {
        $(impl Element for $type {
            const KIND: Kind = $kind;
            fn append(self, bytes: &mut Vec<u8>) {
                bytes.extend_from_slice(&self.to_le_bytes());
            }
        })+
    };
}

element! {
    i8 => Kind::Bits(1), u8 => Kind::Bits(1), i16 => Kind::Bits(2), u16 => Kind::Bits(2),
    i32 => Kind::Bits(4), u32 => Kind::Bits(4), i64 => Kind::Bits(8), u64 => Kind::Bits(8),
    f16 => Kind::F16, bf16 => Kind::Bf16, f32 => Kind::F32, f64 => Kind::F64,
}

pub fn bytes_of<T: Element>(values: &[T]) -> Vec<u8> {
    let mut bytes = Vec::new();
    values.iter().for_each(|v| v.append(&mut bytes));
    bytes
}

/// The error one implementation may make against the true value; each of the three suffices. Two
/// implementations may be twice that apart.
#[derive(Clone, Copy, Debug)]
pub struct Bound {
    pub ulp: u64,
    pub absolute: f64,
    pub relative: f64,
    /// The code is made of exact instructions only: far from the true value it may be, but every
    /// implementation of those instructions gives the same.
    pub determined: bool,
}

pub const fn ulp(ulp: u64) -> Bound {
    Bound {
        ulp,
        absolute: 0.0,
        relative: 0.0,
        determined: false,
    }
}

pub const fn absolute(absolute: f64) -> Bound {
    Bound { absolute, ..ulp(0) }
}

pub const fn relative(relative: f64) -> Bound {
    Bound { relative, ..ulp(0) }
}

impl Bound {
    pub const fn or_absolute(self, absolute: f64) -> Bound {
        Bound { absolute, ..self }
    }

    pub const fn or_relative(self, relative: f64) -> Bound {
        Bound { relative, ..self }
    }

    pub const fn determined(self) -> Bound {
        Bound {
            determined: true,
            ..self
        }
    }
}

/// A buffer of a case.
#[derive(Clone, Copy)]
pub struct Buffer(pub(super) usize);

pub(super) struct Contents {
    pub initial: Vec<u8>,
    pub kind: Kind,
    pub check: Check,
    /// Values per element of the input: a mismatch is told by row and column.
    pub columns: usize,
    pub reference: Option<Vec<u8>>,
}

pub(super) enum Check {
    /// Only read by the kernel: must come back as it was.
    Unchanged,
    /// Working space: anything goes.
    Ignored,
    Exact,
    /// By column, in turn.
    Near(Vec<Bound>),
}

pub enum Arg {
    Buffer(Buffer),
    Value(Vec<u8>),
    /// A tensor map, which the driver makes once the buffer is there.
    Map(Tensor),
}

impl From<Tensor> for Arg {
    fn from(tensor: Tensor) -> Self {
        Arg::Map(tensor)
    }
}

/// A tensor in a buffer, and what copies take of it. Numbers are those of `cuda.h`.
#[derive(Clone)]
pub struct Tensor {
    pub buffer: Buffer,
    pub data: u32,
    pub dims: Vec<u64>,
    /// In bytes.
    pub strides: Vec<u64>,
    pub steps: Vec<u32>,
    pub interleave: u32,
    pub swizzle: u32,
    pub fill: u32,
    pub shape: Shape,
}

/// What a copy takes.
#[derive(Clone)]
pub enum Shape {
    Tile(Vec<u32>),
    Columns {
        lower: Vec<i32>,
        upper: Vec<i32>,
        channels: u32,
        pixels: u32,
    },
}

impl From<Buffer> for Arg {
    fn from(buffer: Buffer) -> Self {
        Arg::Buffer(buffer)
    }
}

impl<T: Element> From<T> for Arg {
    fn from(value: T) -> Self {
        Arg::Value(bytes_of(&[value]))
    }
}

/// A structure by value, as its bytes.
pub fn structure(bytes: Vec<u8>) -> Arg {
    Arg::Value(bytes)
}

macro_rules! args {
    ($($arg:expr),* $(,)?) => { vec![$($crate::kernels::case::Arg::from($arg)),*] };
}
pub(super) use args;

pub(super) struct Launch {
    pub kernel: &'static str,
    pub grid: (u32, u32, u32),
    pub block: (u32, u32, u32),
    pub shared: u32,
    pub cooperative: bool,
    pub args: Vec<Arg>,
}

impl Launch {
    pub fn shared(&mut self, bytes: u32) -> &mut Self {
        self.shared = bytes;
        self
    }

    pub fn cooperative(&mut self) -> &mut Self {
        self.cooperative = true;
        self
    }
}

/// A module's name and its PTX, which travels in the test.
#[derive(Clone, Copy)]
pub struct Ptx {
    pub name: &'static str,
    pub text: &'static str,
}

pub struct Case {
    pub name: &'static str,
    pub ptx: Ptx,
    pub(super) buffers: Vec<Contents>,
    pub(super) launches: Vec<Launch>,
}

/// A launch's size, from one to three dimensions.
pub trait Size {
    fn size(self) -> (u32, u32, u32);
}

impl Size for u32 {
    fn size(self) -> (u32, u32, u32) {
        (self, 1, 1)
    }
}

impl Size for (u32, u32) {
    fn size(self) -> (u32, u32, u32) {
        (self.0, self.1, 1)
    }
}

impl Size for (u32, u32, u32) {
    fn size(self) -> (u32, u32, u32) {
        self
    }
}

impl Case {
    pub fn new(name: &'static str, ptx: Ptx) -> Self {
        Case {
            name,
            ptx,
            buffers: Vec::new(),
            launches: Vec::new(),
        }
    }

    /// Values the kernel reads.
    pub fn input<T: Element>(&mut self, values: &[T]) -> Buffer {
        self.add(bytes_of(values), T::KIND, Check::Unchanged)
    }

    /// Values the kernel reads and writes; the result is compared exactly.
    pub fn inout<T: Element>(&mut self, values: &[T]) -> Buffer {
        self.add(bytes_of(values), T::KIND, Check::Exact)
    }

    /// Room for results, compared exactly; filled with a pattern, so that what is left out shows.
    pub fn output<T: Element>(&mut self, count: usize) -> Buffer {
        self.add(vec![0xa5; count * T::KIND.size()], T::KIND, Check::Exact)
    }

    /// What a buffer begins with.
    pub fn contents(&self, buffer: Buffer) -> &[u8] {
        &self.buffers[buffer.0].initial
    }

    /// Working space, zero at first, whose end state is open.
    pub fn scratch(&mut self, bytes: usize) -> Buffer {
        self.add(vec![0; bytes], Kind::Bits(1), Check::Ignored)
    }

    /// The buffer's rows have so many columns.
    pub fn columns(&mut self, buffer: Buffer, columns: usize) {
        self.buffers[buffer.0].columns = columns;
    }

    /// The buffer is compared within bounds, by column in turn.
    pub fn near(&mut self, buffer: Buffer, bounds: &[Bound]) {
        let buffer = &mut self.buffers[buffer.0];
        buffer.check = Check::Near(bounds.to_vec());
        buffer.columns = bounds.len();
    }

    /// What the host computed for the buffer.
    pub fn expect<T: Element>(&mut self, buffer: Buffer, values: &[T]) {
        let bytes = bytes_of(values);
        let buffer = &mut self.buffers[buffer.0];
        assert_eq!(
            bytes.len(),
            buffer.initial.len(),
            "{}: the reference has the buffer's size",
            self.name
        );
        buffer.reference = Some(bytes);
    }

    pub fn launch(
        &mut self,
        kernel: &'static str,
        grid: impl Size,
        block: impl Size,
        args: Vec<Arg>,
    ) -> &mut Launch {
        let launch = Launch {
            kernel,
            grid: grid.size(),
            block: block.size(),
            shared: 0,
            cooperative: false,
            args,
        };
        self.launches.push(launch);
        self.launches.last_mut().expect("just pushed")
    }

    fn add(&mut self, initial: Vec<u8>, kind: Kind, check: Check) -> Buffer {
        self.buffers.push(Contents {
            initial,
            kind,
            check,
            columns: 1,
            reference: None,
        });
        Buffer(self.buffers.len() - 1)
    }
}
