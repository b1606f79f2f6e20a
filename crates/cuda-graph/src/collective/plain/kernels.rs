//! The kernels of collectives: PTX, put together for each kind, element and reduction.
//!
//! It is text that every driver compiles for its device, from Maxwell (sm_52) on, and is loaded
//! once for a context, when an operation first wants it, or all at once where ranks share the
//! context. The modules go with their context: graphs and executables keep that, so they need not
//! keep the modules.
//!
//! Values are loaded past the first cache (`.cg`): no device may see in it what a slot held before.
//!
//! A kernel is one frame with two holes. STAGE puts a chunk of the rank's values into its slot, and
//! COMBINE makes values of the slots of all.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use cudarc::driver::CudaContext;

use super::Wanted;
use crate::Result;
use crate::collective::kind::{CollectiveKind, ElementType, Reduction};
use crate::driver::per_context::PerContext;
use crate::kernel::Kernel;

/// The kernels of a context, by what they are told apart by.
type Loaded = Arc<Mutex<HashMap<Wanted, Kernel>>>;

/// The kernel that does `kind`, loaded if it is not.
pub(super) fn of(
    context: &Arc<CudaContext>,
    kind: CollectiveKind,
    element: ElementType,
    reduction: Option<Reduction>,
) -> Result<Kernel> {
    let loaded = loaded(context)?;
    let mut loaded = loaded.lock().unwrap_or_else(PoisonError::into_inner);
    let wanted = (kind, element, reduction);
    if let Some(kernel) = loaded.get(&wanted) {
        return Ok(kernel.clone());
    }
    load(context, &mut loaded, &[wanted])?;
    Ok(loaded[&wanted].clone())
}

/// Loads kernels, in one module.
fn load(
    context: &Arc<CudaContext>,
    loaded: &mut HashMap<Wanted, Kernel>,
    wanted: &[Wanted],
) -> Result<()> {
    let names: Vec<String> = wanted.iter().copied().map(name).collect();
    let bodies = wanted
        .iter()
        .map(|wanted| ptx(*wanted).split_off(HEAD.len()));
    let text: String = std::iter::once(HEAD.to_owned()).chain(bodies).collect();
    let kernels = Kernel::load(context, &text, names.iter().map(String::as_str))?;
    loaded.extend(wanted.iter().copied().zip(kernels.iter().cloned()));
    Ok(())
}

fn loaded(context: &Arc<CudaContext>) -> Result<Loaded> {
    static LOADED: LazyLock<PerContext<Loaded>> = LazyLock::new(PerContext::new);
    LOADED.get(context, || Ok(Loaded::default()))
}

/// Loads all kernels into a context. The driver waits for whatever runs in a context when it loads
/// a module there, and lets no launch in meanwhile. Between the launches of two ranks that share a
/// context it would wait for ever.
pub(in crate::collective) fn load_all(context: &Arc<CudaContext>) -> Result<()> {
    let loaded = loaded(context)?;
    let mut loaded = loaded.lock().unwrap_or_else(PoisonError::into_inner);
    let mut missing = all();
    missing.retain(|wanted| !loaded.contains_key(wanted));
    match missing[..] {
        [] => Ok(()),
        _ => load(context, &mut loaded, &missing),
    }
}

/// What there are kernels for.
pub(in crate::collective) fn all() -> Vec<Wanted> {
    let mut all = vec![];
    for kind in CollectiveKind::ALL {
        let elements = match kind {
            // It moves bytes.
            CollectiveKind::Exchange => &[ElementType::U8],
            _ => ElementType::ALL,
        };
        for &element in elements {
            match kind.reduces() {
                true => all.extend(Reduction::ALL.map(|by| (kind, element, Some(by)))),
                false => all.push((kind, element, None)),
            }
        }
    }
    all
}

fn name((kind, element, reduction): Wanted) -> String {
    let kind = match kind {
        CollectiveKind::AllReduce => "all_reduce",
        CollectiveKind::Broadcast => "broadcast",
        CollectiveKind::Reduce => "reduce",
        CollectiveKind::AllGather => "all_gather",
        CollectiveKind::ReduceScatter => "reduce_scatter",
        CollectiveKind::Exchange => return "cuda_graph_exchange".into(),
    };
    match reduction {
        Some(reduction) => format!("cuda_graph_{kind}_{reduction}_{element}"),
        None => format!("cuda_graph_{kind}_{element}"),
    }
}

pub(super) const HEAD: &str = ".version 6.0\n.target sm_52\n.address_size 64\n";

/// The text of a kernel.
pub(in crate::collective) fn ptx(wanted: Wanted) -> String {
    let (kind, element, reduction) = wanted;
    if kind == CollectiveKind::Exchange {
        return super::exchange::ptx(&name(wanted));
    }
    let scalar = match reduction {
        Some(_) => Scalar::of(element),
        None => Scalar::of_size(element.bytes()),
    };
    let (stage, combine) = match kind {
        CollectiveKind::Broadcast => (
            format!(
                "{IF_ROOT}{}STAGED:",
                copy("S", "%own_slot", "%from_at", &scalar)
            ),
            copy("C", "%to_at", "%root_slot", &scalar),
        ),
        CollectiveKind::AllGather => (
            copy("S", "%own_slot", "%from_at", &scalar),
            each_rank("%to_at", "%count_bytes", |slot| {
                copy("C", "%to_at", slot, &scalar)
            }),
        ),
        CollectiveKind::ReduceScatter => (
            STAGE_SHARES.replace("COPY", &copy("S", "%share", "%from_at", &scalar)),
            reduce(reduction, &scalar, "%own_share"),
        ),
        CollectiveKind::Reduce => (
            copy("S", "%own_slot", "%from_at", &scalar),
            format!("{UNLESS_ROOT}{}COMBINED:", reduce(reduction, &scalar, "0")),
        ),
        CollectiveKind::AllReduce | CollectiveKind::Exchange => (
            copy("S", "%own_slot", "%from_at", &scalar),
            reduce(reduction, &scalar, "0"),
        ),
    };
    let frame = FRAME
        .replace("BODY_STAGE", &stage)
        .replace("BODY_COMBINE", &combine)
        .replace("ELEMENT_REGISTER", scalar.register)
        .replace("ELEMENT_BYTES", &element.bytes().to_string())
        .replace("HEADER_BYTES", &(8 * super::HEADER).to_string())
        .replace("SLOT_BYTES", &super::SLOT.to_string())
        .replace("BLOCKS", &super::BLOCKS.to_string())
        .replace("NAME", &name(wanted));
    format!("{HEAD}{frame}")
}

/// The frame. `%turn` counts this block's arrivals, `%at` is the first element of the step, and
/// `%n` how many it has. Thread p looks for rank p's arrival.
const FRAME: &str = "
.visible .entry NAME(.param .u64 stop, .param .u64 record, .param .u64 headers, .param .u64 slots,
    .param .u64 to, .param .u64 from, .param .u64 count, .param .u64 slice, .param .u64 step,
    .param .u64 code, .param .u32 rank, .param .u32 size, .param .u32 root)
{
    .reg .pred %p, %failed;
    .reg .b32 %bad, %thread32, %width32, %block, %rank, %size, %root, %peer, %word;
    .reg .b64 %stop, %record, %headers, %slots, %to, %from, %count, %slice, %step, %code;
    .reg .b64 %thread, %width, %end, %at, %n, %turn, %next, %parity, %i, %o, %a, %t;
    .reg .b64 %own_header, %own_slot, %from_at, %to_at, %rank_slots, %root_slot, %count_bytes;
    .reg .b64 %header, %seen, %their_code, %their_count, %share, %own_share, %slot, %src, %dst;
    .reg .ELEMENT_REGISTER %v, %w;
    .reg .b16 %h;
    .reg .b32 %x, %y;

    ld.param.u64 %stop, [stop];
    ld.param.u64 %record, [record];
    ld.param.u64 %headers, [headers];
    ld.param.u64 %slots, [slots];
    ld.param.u64 %to, [to];
    ld.param.u64 %from, [from];
    ld.param.u64 %count, [count];
    ld.param.u64 %slice, [slice];
    ld.param.u64 %step, [step];
    ld.param.u64 %code, [code];
    ld.param.u32 %rank, [rank];
    ld.param.u32 %size, [size];
    ld.param.u32 %root, [root];
    cvta.to.global.u64 %stop, %stop;
    cvta.to.global.u64 %record, %record;
    cvta.to.global.u64 %headers, %headers;
    cvta.to.global.u64 %slots, %slots;
    cvta.to.global.u64 %to, %to;
    cvta.to.global.u64 %from, %from;
    mov.u32 %thread32, %tid.x;
    mov.u32 %width32, %ntid.x;
    mov.u32 %block, %ctaid.x;
    cvt.u64.u32 %thread, %thread32;
    cvt.u64.u32 %width, %width32;
    mul.lo.u64 %count_bytes, %count, ELEMENT_BYTES;

    cvt.u64.u32 %t, %block;
    mul.lo.u64 %at, %t, %slice;
    min.u64 %at, %at, %count;
    add.u64 %end, %at, %slice;
    min.u64 %end, %end, %count;
    mul.lo.u64 %t, %t, HEADER_BYTES;
    add.u64 %headers, %headers, %t;
    mul.wide.u32 %t, %block, 2*SLOT_BYTES;
    add.u64 %slots, %slots, %t;
    mul.wide.u32 %t, %rank, BLOCKS*HEADER_BYTES;
    add.u64 %own_header, %headers, %t;
    ld.volatile.global.u64 %turn, [%own_header];

STEP:
    sub.u64 %n, %end, %at;
    min.u64 %n, %n, %step;
    and.b64 %parity, %turn, 1;
    mul.lo.u64 %t, %parity, SLOT_BYTES;
    add.u64 %rank_slots, %slots, %t;
    mul.wide.u32 %t, %rank, BLOCKS*2*SLOT_BYTES;
    add.u64 %own_slot, %rank_slots, %t;
    mul.wide.u32 %t, %root, BLOCKS*2*SLOT_BYTES;
    add.u64 %root_slot, %rank_slots, %t;
    mul.lo.u64 %t, %at, ELEMENT_BYTES;
    add.u64 %from_at, %from, %t;
    add.u64 %to_at, %to, %t;
    cvt.u64.u32 %own_share, %rank;
    mul.lo.u64 %own_share, %own_share, %step;
    mul.lo.u64 %own_share, %own_share, ELEMENT_BYTES;
BODY_STAGE
    bar.sync 0;
    add.u64 %next, %turn, 1;
    shl.b64 %parity, %parity, 4;
    setp.ne.u32 %p, %thread32, 0;
    @%p bra ARRIVED;
    add.u64 %a, %own_header, %parity;
    st.volatile.global.u64 [%a+16], %code;
    st.volatile.global.u64 [%a+24], %count;
    membar.sys;
    st.volatile.global.u64 [%own_header], %next;
ARRIVED:
    mov.u32 %bad, 0;
    mov.u32 %peer, %thread32;
PEER:
    setp.ge.u32 %p, %peer, %size;
    @%p bra MET;
    mul.wide.u32 %t, %peer, BLOCKS*HEADER_BYTES;
    add.u64 %header, %headers, %t;
LOOK:
    ld.volatile.global.u64 %seen, [%header];
    ld.volatile.global.u32 %word, [%stop];
    setp.ne.u32 %p, %word, 0;
    @%p bra STOPPED;
    setp.lt.u64 %p, %seen, %next;
    @%p bra LOOK;
    membar.sys;
    add.u64 %a, %header, %parity;
    ld.volatile.global.u64 %their_code, [%a+16];
    ld.volatile.global.u64 %their_count, [%a+24];
    setp.ne.u64 %p, %their_code, %code;
    @%p bra DIFFERS;
    setp.ne.u64 %p, %their_count, %count;
    @%p bra DIFFERS;
    add.u32 %peer, %peer, %width32;
    bra PEER;
DIFFERS:
    atom.global.cas.b32 %word, [%record], 0, 1;
    setp.ne.u32 %p, %word, 0;
    @%p bra STOPPED;
    cvt.u64.u32 %t, %peer;
    st.volatile.global.u64 [%record+8], %t;
    st.volatile.global.u64 [%record+16], %code;
    st.volatile.global.u64 [%record+24], %count;
    st.volatile.global.u64 [%record+32], %their_code;
    st.volatile.global.u64 [%record+40], %their_count;
    membar.sys;
    mov.u32 %word, 1;
    st.volatile.global.u32 [%record+4], %word;
    membar.sys;
    st.volatile.global.u32 [%stop], %word;
STOPPED:
    mov.u32 %bad, 1;
MET:
    setp.ne.u32 %p, %bad, 0;
    bar.red.or.pred %failed, 0, %p;
    @%failed ret;
BODY_COMBINE
    add.u64 %at, %at, %step;
    mov.u64 %turn, %next;
    setp.lt.u64 %p, %at, %end;
    @%p bra STEP;
    ret;
}
";

/// In front of what the root alone stages.
const IF_ROOT: &str = "
    setp.ne.u32 %p, %rank, %root;
    @%p bra STAGED;
";

/// In front of what the root alone combines.
const UNLESS_ROOT: &str = "
    setp.ne.u32 %p, %rank, %root;
    @%p bra COMBINED;
";

/// Puts a share for each rank into the slot.
const STAGE_SHARES: &str = "
    mov.u64 %share, %own_slot;
    mov.u32 %peer, 0;
SHARE:
COPY
    add.u64 %from_at, %from_at, %count_bytes;
    mul.lo.u64 %t, %step, ELEMENT_BYTES;
    add.u64 %share, %share, %t;
    add.u32 %peer, %peer, 1;
    setp.lt.u32 %p, %peer, %size;
    @%p bra SHARE;
";

/// Copies `%n` elements, thread by thread. Labels begin with `label`.
fn copy(label: &str, to: &str, from: &str, scalar: &Scalar) -> String {
    let Scalar { load, store, .. } = scalar;
    format!(
        "
    mov.u64 %i, %thread;
{label}_COPY:
    setp.ge.u64 %p, %i, %n;
    @%p bra {label}_COPIED;
    mul.lo.u64 %o, %i, ELEMENT_BYTES;
    add.u64 %a, {from}, %o;
    ld.global.cg.{load} %RAW, [%a];
    add.u64 %a, {to}, %o;
    st.global.{store} [%a], %RAW;
    add.u64 %i, %i, %width;
    bra {label}_COPY;
{label}_COPIED:
"
    )
    .replace("%RAW", scalar.raw)
}

/// Does something for the slot of each rank, and adds `stride` to `%at` each time.
fn each_rank(at: &str, stride: &str, what: impl FnOnce(&str) -> String) -> String {
    let what = what("%slot");
    format!(
        "
    mov.u64 %slot, %rank_slots;
    mov.u32 %peer, 0;
GATHER:
{what}
    add.u64 {at}, {at}, {stride};
    add.u64 %slot, %slot, BLOCKS*2*SLOT_BYTES;
    add.u32 %peer, %peer, 1;
    setp.lt.u32 %p, %peer, %size;
    @%p bra GATHER;
"
    )
}

/// Reduces the values of all slots, from `offset` on, in the order of the ranks.
fn reduce(reduction: Option<Reduction>, scalar: &Scalar, offset: &str) -> String {
    let reduction = reduction.unwrap_or(Reduction::Sum);
    let (load, save) = (scalar.load_value(), scalar.store_value());
    let (one, finish) = (scalar.combine(reduction), scalar.finish(reduction));
    format!(
        "
    mov.u64 %i, %thread;
REDUCE:
    setp.ge.u64 %p, %i, %n;
    @%p bra REDUCED;
    mul.lo.u64 %o, %i, ELEMENT_BYTES;
    add.u64 %a, %rank_slots, %o;
    add.u64 %a, %a, {offset};
{}
    mov.u32 %peer, 1;
ONE:
    setp.ge.u32 %p, %peer, %size;
    @%p bra ALL;
    add.u64 %a, %a, BLOCKS*2*SLOT_BYTES;
{}
{one}
    add.u32 %peer, %peer, 1;
    bra ONE;
ALL:
{finish}
    add.u64 %a, %to_at, %o;
{save}
    add.u64 %i, %i, %width;
    bra REDUCE;
REDUCED:
",
        load.replace("%V", "%v"),
        load.replace("%V", "%w"),
    )
}

/// How values of a type are loaded, stored and computed with.
struct Scalar {
    element: Option<ElementType>,
    /// The type of registers that are computed with.
    register: &'static str,
    load: &'static str,
    store: &'static str,
    /// The register that copies go through.
    raw: &'static str,
}

impl Scalar {
    /// Values of so many bytes that are copied.
    fn of_size(bytes: usize) -> Scalar {
        let (register, kind) = match bytes {
            1 => ("b32", "u8"),
            2 => ("b32", "u16"),
            4 => ("b32", "u32"),
            _ => ("b64", "u64"),
        };
        Scalar {
            element: None,
            register,
            load: kind,
            store: kind,
            raw: "%v",
        }
    }

    /// Values that are reduced.
    fn of(element: ElementType) -> Scalar {
        use ElementType as E;
        let (register, kind, raw) = match element {
            E::U8 => ("u32", "u8", "%v"),
            E::I8 => ("s32", "s8", "%v"),
            E::U32 => ("u32", "u32", "%v"),
            E::I32 => ("s32", "s32", "%v"),
            E::U64 => ("u64", "u64", "%v"),
            E::I64 => ("s64", "s64", "%v"),
            E::F32 => ("f32", "f32", "%v"),
            E::F64 => ("f64", "f64", "%v"),
            E::F16 | E::Bf16 => ("f32", "b16", "%h"),
        };
        Scalar {
            element: Some(element),
            register,
            load: kind,
            store: kind,
            raw,
        }
    }

    /// Loads the value at `%a` into `%V`.
    fn load_value(&self) -> String {
        let load = format!("    ld.global.cg.{} {}, [%a];", self.load, self.raw);
        match self.element {
            Some(ElementType::F16) => format!("{load}\n    cvt.f32.f16 %V, %h;"),
            // A bfloat16 is the first half of an f32.
            Some(ElementType::Bf16) => format!(
                "{load}\n    cvt.u32.u16 %x, %h;\n    shl.b32 %x, %x, 16;\n    mov.b32 %V, %x;"
            ),
            _ => load.replace("%v", "%V"),
        }
    }

    /// Stores `%v` at `%a`.
    fn store_value(&self) -> String {
        let store = format!("    st.global.{} [%a], {};", self.store, self.raw);
        match self.element {
            Some(ElementType::F16) => format!("    cvt.rn.f16.f32 %h, %v;\n{store}"),
            Some(ElementType::Bf16) => format!("{TO_BF16}\n{store}"),
            _ => store,
        }
    }

    fn combine(&self, reduction: Reduction) -> String {
        let register = self.register;
        let is_float = register.starts_with('f');
        let operation = match reduction {
            Reduction::Sum | Reduction::Average if is_float => "add.rn",
            Reduction::Sum | Reduction::Average => "add",
            Reduction::Product if is_float => "mul.rn",
            Reduction::Product => "mul.lo",
            Reduction::Min => "min",
            Reduction::Max => "max",
        };
        format!("    {operation}.{register} %v, %v, %w;")
    }

    /// Makes an average of a sum.
    fn finish(&self, reduction: Reduction) -> String {
        if reduction != Reduction::Average {
            return String::new();
        }
        let register = self.register;
        // Sums of 8 bits wrap as others do.
        let wrap = match self.element {
            Some(ElementType::U8) => "    and.b32 %v, %v, 255;\n",
            Some(ElementType::I8) => "    shl.b32 %v, %v, 24;\n    shr.s32 %v, %v, 24;\n",
            _ => "",
        };
        match register.starts_with('f') {
            true => {
                format!("    cvt.rn.{register}.u32 %w, %size;\n    div.rn.{register} %v, %v, %w;")
            }
            false if register.ends_with("32") => {
                format!("{wrap}    mov.b32 %w, %size;\n    div.{register} %v, %v, %w;")
            }
            false => format!("    cvt.u64.u32 %w, %size;\n    div.{register} %v, %v, %w;"),
        }
    }
}

/// Rounds `%v` to the nearest bfloat16, ties to even, by hand: the instruction needs sm_80. A NaN
/// stays one.
const TO_BF16: &str = "    mov.b32 %x, %v;
    shr.u32 %y, %x, 16;
    and.b32 %y, %y, 1;
    add.u32 %y, %y, 0x7fff;
    add.u32 %y, %x, %y;
    setp.nan.f32 %p, %v, %v;
    selp.b32 %x, 0x7fff0000, %y, %p;
    shr.u32 %x, %x, 16;
    cvt.u16.u32 %h, %x;";
