//! The kernel that fills and copies memory, by a table in its parameters.
//!
//! It is PTX, which every driver compiles for its device, and is loaded once for a context. The
//! module goes with its context: graphs and executables keep that, so they need not keep the
//! module.

use std::sync::Arc;

use cudarc::driver::{CudaContext, LaunchConfig};
use smallvec::SmallVec;

use super::super::transfer::{From, Transfer};
use super::super::{KernelOp, Op, Tag};
use crate::driver::per_context::PerContext;
use crate::kernel::{Arguments, Kernel};
use crate::{Owner, Result};

/// The most bytes that the value of a fill has.
pub(in crate::op) const MOST_VALUE: usize = 256;

/// The words of a slot: of an entry, or of values too long for the entries.
///
/// An entry is the place of the first byte, its pitch, the words of a row, the rows of a plane, and
/// as halves of a word the planes and the kind. A copy goes on with where it reads, the pitch
/// there, and the bytes of a plane on both sides. A fill has the words of its value in place of the
/// planes, and goes on with the byte of the table where the value starts.
const SLOT: usize = 9;
/// The word of an entry where a value starts that fits there.
const VALUE: usize = 6;

/// How many slots a table has: of several kernels, the first with enough is taken. Before CUDA 12.1
/// the parameters of a kernel are 4096 bytes at most.
const TABLES: [usize; 3] = [1, 8, 56];
/// The most slots that a launch has room for.
pub(crate) const MOST_SLOTS: usize = TABLES[2];

/// The threads of a block: as many as a value has words, at least.
const BLOCK: u64 = 256;
/// The most blocks of a launch, all entries together.
const MOST_BLOCKS: u64 = 2048;

/// Bit of an entry's kind: it is a fill. Below it is the logarithm of the bytes of a word.
const FILL: u32 = 8;

const HEAD: &str = ".version 7.0\n.target sm_70\n.address_size 64\n";

/// The blocks of row `y` do entry `y`, word by word. The threads of a row are numbered; one does
/// words `i`, `i + stride`, .. of the entry. Of a word it knows the place in its row, the row and
/// the plane, and adds those of the stride, so that nothing is divided in the loop.
///
/// A fill's stride is a multiple of the words of its value, as its rows are: so a thread stores one
/// word of the value again and again. Threads from the stride on have nothing to do.
const START: &str = "
.visible .entry cuda_graph_transfer_SLOTS(.param .align 8 .b8 table[BYTES])
{
    .reg .pred %over, %several;
    .reg .b32 %a, %b, %c, %kind;
    .reg .b64 %table, %entry, %i, %stride, %t, %value, %v, %u;
    .reg .b64 %to, %to_pitch, %to_plane, %from, %from_pitch, %from_plane, %at, %source;
    .reg .b64 %width, %height, %depth, %period;
    .reg .b64 %word, %row, %plane, %step_word, %step_row, %step_plane;

    mov.u32 %a, %ctaid.y;
    mul.wide.u32 %t, %a, SLOT;
    mov.u64 %table, table;
    add.u64 %entry, %table, %t;
    ld.param.u64 %width, [%entry+16];
    setp.eq.u64 %over, %width, 0;
    @%over ret;
    ld.param.u64 %to, [%entry];
    ld.param.u64 %to_pitch, [%entry+8];
    ld.param.u64 %height, [%entry+24];
    ld.param.u32 %b, [%entry+32];
    cvt.u64.u32 %depth, %b;
    ld.param.u32 %kind, [%entry+36];
    cvta.to.global.u64 %to, %to;
    mov.u32 %a, %ctaid.x;
    mov.u32 %b, %ntid.x;
    mov.u32 %c, %tid.x;
    mad.lo.u32 %c, %a, %b, %c;
    cvt.u64.u32 %i, %c;
    mov.u32 %a, %nctaid.x;
    mul.lo.u32 %a, %a, %b;
    cvt.u64.u32 %stride, %a;
    and.b32 %a, %kind, FILL;
    setp.ne.u32 %over, %a, 0;
    @%over bra VALUE;

    ld.param.u64 %from, [%entry+40];
    cvta.to.global.u64 %from, %from;
    ld.param.u64 %from_pitch, [%entry+48];
    ld.param.u64 %to_plane, [%entry+56];
    ld.param.u64 %from_plane, [%entry+64];
    bra PLACE;

VALUE:
    ld.param.u64 %t, [%entry+40];
    add.u64 %from, %table, %t;
    mov.u64 %period, %depth;
    mov.u64 %depth, 1;
    mov.u64 %to_plane, 0;
    mov.u64 %value, 0;
    setp.eq.u64 %over, %period, 1;
    @%over bra PLACE;
    rem.u64 %t, %stride, %period;
    sub.u64 %stride, %stride, %t;
    setp.ge.u64 %over, %i, %stride;
    @%over ret;
    rem.u64 %value, %i, %period;

PLACE:
    mov.u64 %word, %i;
    mov.u64 %row, 0;
    mov.u64 %plane, 0;
    mov.u64 %step_word, %stride;
    mov.u64 %step_row, 0;
    mov.u64 %step_plane, 0;
    mul.lo.u64 %t, %height, %depth;
    setp.ne.u64 %several, %t, 1;
    @%several bra DIVIDE;
    setp.ge.u64 %over, %word, %width;
    @%over ret;
    bra BRANCH;
DIVIDE:
    div.u64 %t, %i, %width;
    mul.lo.u64 %v, %t, %width;
    sub.u64 %word, %i, %v;
    div.u64 %plane, %t, %height;
    setp.ge.u64 %over, %plane, %depth;
    @%over ret;
    mul.lo.u64 %v, %plane, %height;
    sub.u64 %row, %t, %v;
    div.u64 %t, %stride, %width;
    mul.lo.u64 %v, %t, %width;
    sub.u64 %step_word, %stride, %v;
    div.u64 %step_plane, %t, %height;
    mul.lo.u64 %v, %step_plane, %height;
    sub.u64 %step_row, %t, %v;

BRANCH:
";

/// For each kind: a branch to its loop.
const BRANCH: &str = "    setp.eq.u32 %over, %kind, KIND;
    @%over bra KIND_KIND;
";

const AT: &str = "    mad.lo.u64 %at, %plane, %to_plane, %to;
    mad.lo.u64 %at, %row, %to_pitch, %at;
    mad.lo.u64 %at, %word, WIDE, %at;
";

const LOAD_VALUE: &str = "    mad.lo.u64 %t, %value, WIDE, %from;
    ld.param.TYPE %v, [%t];
";
const LOAD_LONG_VALUE: &str = "    mad.lo.u64 %t, %value, WIDE, %from;
    ld.param.u64 %v, [%t];
    ld.param.u64 %u, [%t+8];
";
const LOAD: &str = "    mad.lo.u64 %source, %plane, %from_plane, %from;
    mad.lo.u64 %source, %row, %from_pitch, %source;
    mad.lo.u64 %source, %word, WIDE, %source;
    ld.global.TYPE WORD, [%source];
";
const STORE: &str = "    st.global.TYPE [%at], WORD;\n";

/// The next word of the thread, in the loop of a kind.
const NEXT: &str = "    add.u64 %word, %word, %step_word;
    add.u64 %row, %row, %step_row;
    add.u64 %plane, %plane, %step_plane;
    setp.lt.u64 %over, %word, %width;
    @%over bra ROW_KIND;
    sub.u64 %word, %word, %width;
    add.u64 %row, %row, 1;
ROW_KIND:
    setp.lt.u64 %over, %row, %height;
    @%over bra PLANE_KIND;
    sub.u64 %row, %row, %height;
    add.u64 %plane, %plane, 1;
PLANE_KIND:
    setp.lt.u64 %over, %plane, %depth;
    @%over bra LOOP_KIND;
    ret;
";

/// What follows [`START`]: a loop for each kind.
fn loops() -> String {
    let kinds = (0..5).chain(FILL..FILL + 5);
    let branches = kinds.clone().map(|kind| {
        let kind = kind.to_string();
        BRANCH
            .replace("KIND_KIND", &format!("KIND_{kind}"))
            .replace("KIND;", &format!("{kind};"))
    });
    let branches: String = branches.collect();
    let loops = kinds.map(|kind| {
        let (log, is_fill) = (kind % FILL, kind >= FILL);
        let before = match (is_fill, log) {
            (false, _) => "",
            (true, 4) => LOAD_LONG_VALUE,
            (true, _) => LOAD_VALUE,
        };
        let load = if is_fill { "" } else { LOAD };
        let (of, word) = match log {
            4 => ("v2.u64".to_owned(), "{%v, %u}"),
            log => (format!("u{}", 8 << log), "%v"),
        };
        format!("KIND_{kind}:\n{before}LOOP_{kind}:\n{AT}{load}{STORE}{NEXT}")
            .replace("_KIND", &format!("_{kind}"))
            .replace("WIDE", &(1 << log).to_string())
            .replace("TYPE", &of)
            .replace("WORD", word)
    });
    let loops: String = loops.collect();
    format!("{branches}    ret;\n{loops}}}\n")
}

/// The kernels of `context`, loaded if they are not: one for each of [`TABLES`].
fn kernels(context: &Arc<CudaContext>) -> Result<Arc<[Kernel]>> {
    static LOADED: PerContext<Arc<[Kernel]>> = PerContext::new();
    LOADED.get(context, || {
        let of_slots = |text: &str, slots: usize| {
            let text = text.replace("SLOTS", &slots.to_string());
            let text = text.replace("BYTES", &(8 * SLOT * slots).to_string());
            let text = text.replace("FILL", &FILL.to_string());
            text.replace("SLOT", &(8 * SLOT).to_string())
        };
        let rest = loops();
        let ptx = TABLES.map(|slots| of_slots(START, slots) + &rest).concat();
        let names = TABLES.map(|slots| of_slots("cuda_graph_transfer_SLOTS", slots));
        let names = names.iter().map(String::as_str);
        Kernel::load(context, &format!("{HEAD}{ptx}"), names)
    })
}

/// How many slots a fill or copy takes at most.
pub(super) fn slots(transfer: &Transfer<'_>) -> usize {
    match &transfer.from {
        From::Value(value) => 1 + Word::of_value(value, transfer).slots(),
        From::Memory(_) => 1,
    }
}

/// A launch of what `transfers` say, side by side, each by its number; `None` stands for nothing.
/// It holds `owners`. `None` if they do not fit into a table.
///
/// # Safety
///
/// The kernel may read and write the memory that they name, for as long as the owners live.
pub(in crate::op) unsafe fn launch(
    context: &Arc<CudaContext>,
    transfers: Vec<Option<Transfer<'_>>>,
    owners: impl Iterator<Item = Owner>,
    tag: Tag,
) -> Option<Result<KernelOp>> {
    let mut table = vec![0; transfers.len() * SLOT];
    let (rows, mut most_words) = (transfers.len().max(1) as u64, 0);
    for (index, transfer) in transfers.into_iter().enumerate() {
        if let Some(transfer) = transfer.filter(|transfer| transfer.bytes() > 0) {
            let words = write(&mut table, index * SLOT, &transfer.flattened())?;
            most_words = words.max(most_words);
        }
    }
    let size = table.len().div_ceil(SLOT);
    let kernel = TABLES.iter().position(|slots| size <= *slots)?;
    table.resize(TABLES[kernel] * SLOT, 0);

    let blocks = most_words.div_ceil(BLOCK).min(MOST_BLOCKS / rows).max(1);
    let config = LaunchConfig {
        grid_dim: (blocks as u32, rows as u32, 1),
        block_dim: (BLOCK as u32, 1, 1),
        shared_mem_bytes: 0,
    };
    let mut arguments = Arguments::default();
    let bytes = table.as_slice();
    // SAFETY: the words are initialized, and `MaybeUninit` lies as what it is of.
    let bytes =
        unsafe { std::slice::from_raw_parts(bytes.as_ptr().cast(), std::mem::size_of_val(bytes)) };
    // SAFETY: every byte is initialized.
    unsafe { arguments.bytes(bytes, true) };
    owners.for_each(|owner| arguments.keep(owner));
    let kernels = match kernels(context) {
        Ok(kernels) => kernels,
        Err(error) => return Some(Err(error)),
    };
    // SAFETY: the kernel reads and writes what the table names, by the caller.
    let made = unsafe { KernelOp::new(&kernels[kernel], config, arguments) };
    Some(made.map(|mut op| {
        *op.tag_mut() = tag;
        op
    }))
}

/// Writes an entry at word `at`, and its value behind all words if it is long. Gives how many words
/// the entry has to move; `None` where a number does not fit.
fn write(table: &mut Vec<u64>, at: usize, transfer: &Transfer<'_>) -> Option<u64> {
    let to = &transfer.to;
    let (width, height, depth) = (transfer.width, transfer.height, transfer.depth);
    // The pitch of a single row is of no consequence.
    let pitch = |pitch: u64| if height > 1 { pitch } else { 0 };
    let plane = |plane: u64| if depth > 1 { plane } else { 0 };
    let entry = match &transfer.from {
        From::Value(value) => {
            let value = Word::of_value(value, transfer);
            let start = match value.bytes.len() <= 8 * (SLOT - VALUE) {
                true => at + VALUE,
                false => table.len(),
            };
            let end = start + value.bytes.len().div_ceil(8);
            table.resize(table.len().max(end), 0);
            for (word, bytes) in table[start..].iter_mut().zip(value.bytes.chunks(8)) {
                let mut whole = [0; 8];
                whole[..bytes.len()].copy_from_slice(bytes);
                *word = u64::from_le_bytes(whole);
            }
            table[at + 5] = 8 * start as u64;
            let period = (value.bytes.len() >> value.log) as u64;
            (value.log, period, FILL)
        }
        From::Memory(from) => {
            let lie = to.start | from.start | width;
            let lie = lie | pitch(to.pitch) | pitch(from.pitch);
            let lie = lie | plane(to.plane) | plane(from.plane);
            table[at + 5..at + SLOT].copy_from_slice(&[
                from.start,
                pitch(from.pitch),
                plane(to.plane),
                plane(from.plane),
            ]);
            (log(lie), depth, 0)
        }
    };
    let (log, depth, fill) = entry;
    let kind = u64::from(log | fill);
    let depth = u32::try_from(depth).ok()?;
    table[at..at + 5].copy_from_slice(&[
        to.start,
        pitch(to.pitch),
        width >> log,
        height,
        u64::from(depth) | kind << 32,
    ]);
    Some(transfer.bytes() >> log)
}

/// The logarithm of the widest word that something is a multiple of.
fn log(lies: u64) -> u32 {
    lies.trailing_zeros().min(4)
}

/// How the value of a fill is stored.
struct Word {
    /// The value, or several of it in a row.
    bytes: SmallVec<[u8; 16]>,
    log: u32,
}

impl Word {
    fn of_value(value: &[u8], transfer: &Transfer<'_>) -> Word {
        let repeats = |&period: &usize| {
            value.len().is_multiple_of(period)
                && value.chunks(period).all(|part| *part == value[..period])
        };
        // The part of the value that it repeats.
        let period = [1, 2, 4, 8].into_iter().find(repeats);
        let part = &value[..period.unwrap_or(value.len())];
        let pitch = if transfer.height > 1 {
            transfer.to.pitch
        } else {
            0
        };
        let log = log(transfer.to.start | pitch | transfer.width);
        let word = 1 << log;
        if part.len().is_power_of_two() && part.len() <= word {
            let bytes = part.iter().copied().cycle().take(word).collect();
            return Word { bytes, log };
        }
        let log = log.min(part.len().trailing_zeros());
        Word {
            bytes: SmallVec::from_slice(part),
            log,
        }
    }

    /// How many slots it takes beyond its entry's.
    fn slots(&self) -> usize {
        match self.bytes.len() <= 8 * (SLOT - VALUE) {
            true => 0,
            false => self.bytes.len().div_ceil(8 * SLOT),
        }
    }
}
