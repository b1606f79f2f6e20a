//! Messages between ranks: sends and receives of one kernel, which get on together.
//!
//! A kernel has a block for each *lane*: the sends to one rank, or the receives from one. A lane
//! does its messages one after the other, and lanes do not wait for each other. So sends and
//! receives are done in whatever order they were given, and a rank may send to itself.
//!
//! A lane goes in chunks. A sender waits until a slot of the mailbox is free, fills it, and counts
//! up what was sent. A receiver waits for that count, reads the slot, and counts up what was taken.
//! So a sender does not wait for the receiver, but for room.

use std::sync::Arc;

use cudarc::driver::{CudaContext, LaunchConfig};

use super::kernels::{self, HEAD};
use super::{BOX, Group, Launch, Layout, TAKEN, THREADS};
use crate::Result;
use crate::collective::kind::{Call, CollectiveKind, ElementType};
use crate::kernel::Arguments;
use crate::memory::Region;

/// The most messages of an exchange, of every engine: a kernel's parameters have room for 4096
/// bytes.
pub(in crate::collective) const MOST: usize = 64;
/// The words of an entry: where the values lie, their bytes, what the message is in two numbers,
/// and whose it is.
const ENTRY: usize = 5;
/// Bit of the last word of an entry: it is sent. Below it is the lane; the other rank is above.
const SENT: u32 = 31;

/// One message.
pub(crate) struct Message<'a> {
    pub is_sent: bool,
    pub peer: u32,
    pub element: ElementType,
    pub count: u64,
    pub region: &'a Region,
}

impl Message<'_> {
    fn call(&self) -> Call {
        Call {
            kind: CollectiveKind::Exchange,
            element: self.element,
            reduction: None,
            root: 0,
            count: self.count,
        }
    }
}

/// The launch of a rank's messages, of which there are at most [`MOST`].
pub(in crate::collective) fn launch(
    group: &Group,
    context: &Arc<CudaContext>,
    rank: u32,
    messages: &[Message<'_>],
) -> Result<Launch> {
    let mut lanes: Vec<(bool, u32)> = Vec::new();
    let mut table = [0u64; MOST * ENTRY];
    for (entry, message) in table.chunks_mut(ENTRY).zip(messages) {
        let lane = (message.is_sent, message.peer);
        let number = lanes.iter().position(|known| *known == lane);
        let number = number.unwrap_or_else(|| {
            lanes.push(lane);
            lanes.len() - 1
        });
        let sent = u64::from(message.is_sent) << SENT;
        entry.copy_from_slice(&[
            message.region.address(),
            message.count * message.element.bytes() as u64,
            message.call().code(),
            message.count,
            number as u64 | sent | u64::from(message.peer) << 32,
        ]);
    }
    let mut arguments = Arguments::default();
    for word in [
        group.address(0),
        group.address(Layout::record(rank)),
        group.address(group.layout.boxes),
        group.address(group.layout.letters),
        group.layout.letter as u64,
    ] {
        arguments.value(&word);
    }
    for word in [rank, group.layout.ranks as u32, messages.len() as u32] {
        arguments.value(&word);
    }
    arguments.words_of(&table);
    let owners = messages.iter().filter_map(|it| it.region.owner.clone());
    owners.for_each(|owner| arguments.keep(owner));
    group.keep(&mut arguments);
    Ok(Launch::Own {
        kernel: kernels::of(context, CollectiveKind::Exchange, ElementType::U8, None)?,
        config: LaunchConfig {
            grid_dim: (lanes.len().max(1) as u32, 1, 1),
            block_dim: (THREADS, 1, 1),
            shared_mem_bytes: 0,
        },
        arguments,
    })
}

/// The text of the kernel.
pub(super) fn ptx(name: &str) -> String {
    let text = PTX
        .replace("COPY_OUT", &copy("OUT", "%slot", "%local"))
        .replace("COPY_IN", &copy("IN", "%local", "%slot"))
        .replace("TABLE_BYTES", &(8 * MOST * ENTRY).to_string())
        .replace("ENTRY_BYTES", &(8 * ENTRY).to_string())
        .replace("BOX_BYTES", &(8 * BOX).to_string())
        .replace("TAKEN", &(8 * TAKEN).to_string())
        .replace("SENT_BIT", &format!("{:#x}", 1u64 << SENT))
        .replace("LANE_BITS", &format!("{:#x}", (1u64 << SENT) - 1))
        .replace("NAME", name);
    format!("{HEAD}{text}")
}

/// Copies `%n` bytes: in words of 8 where both sides are aligned, which slots are, then in bytes.
fn copy(label: &str, to: &str, from: &str) -> String {
    let part = |words: &str, unit: u32, kind: &str, value: &str| {
        format!(
            "
{label}_{words}:
    add.u64 %t, %i, {unit};
    setp.gt.u64 %p, %t, %n;
    @%p bra {label}_{words}_DONE;
    add.u64 %a, {from}, %i;
    ld.global.cg.{kind} {value}, [%a];
    add.u64 %a, {to}, %i;
    st.global.{kind} [%a], {value};
    mad.lo.u64 %i, %width, {unit}, %i;
    bra {label}_{words};
{label}_{words}_DONE:
"
        )
    };
    let (words, bytes) = (
        part("WORDS", 8, "u64", "%value"),
        part("BYTES", 1, "u8", "%byte"),
    );
    format!(
        "
    mov.u64 %i, %thread;
    and.b64 %t, %local, 7;
    setp.ne.u64 %p, %t, 0;
    @%p bra {label}_BYTES;
    shl.b64 %i, %thread, 3;
{words}
    and.b64 %i, %n, 0xfffffffffffffff8;
    add.u64 %i, %i, %thread;
{bytes}
"
    )
}

const PTX: &str = "
.visible .entry NAME(.param .u64 stop, .param .u64 record, .param .u64 boxes, .param .u64 letters,
    .param .u64 letter, .param .u32 rank, .param .u32 size, .param .u32 entries,
    .param .align 8 .b8 table[TABLE_BYTES])
{
    .reg .pred %p, %q, %sends, %failed;
    .reg .b32 %bad, %thread32, %width32, %block, %rank, %size, %entries, %entry, %word, %peer;
    .reg .b32 %pair, %byte;
    .reg .b64 %stop, %record, %boxes, %letters, %letter, %table, %thread, %width, %t, %a, %i, %n;
    .reg .b64 %local, %left, %code, %count, %whose, %box, %box_letters, %own, %turn, %seen;
    .reg .b64 %parity, %slot, %their_code, %their_count, %value;

    ld.param.u64 %stop, [stop];
    ld.param.u64 %record, [record];
    ld.param.u64 %boxes, [boxes];
    ld.param.u64 %letters, [letters];
    ld.param.u64 %letter, [letter];
    ld.param.u32 %rank, [rank];
    ld.param.u32 %size, [size];
    ld.param.u32 %entries, [entries];
    cvta.to.global.u64 %stop, %stop;
    cvta.to.global.u64 %record, %record;
    cvta.to.global.u64 %boxes, %boxes;
    cvta.to.global.u64 %letters, %letters;
    mov.u64 %table, table;
    mov.u32 %thread32, %tid.x;
    mov.u32 %width32, %ntid.x;
    mov.u32 %block, %ctaid.x;
    cvt.u64.u32 %thread, %thread32;
    cvt.u64.u32 %width, %width32;
    mov.u32 %entry, 0;

MESSAGE:
    setp.ge.u32 %p, %entry, %entries;
    @%p ret;
    mul.wide.u32 %a, %entry, ENTRY_BYTES;
    add.u64 %a, %table, %a;
    add.u32 %entry, %entry, 1;
    ld.param.u64 %whose, [%a+32];
    and.b64 %t, %whose, LANE_BITS;
    cvt.u32.u64 %word, %t;
    setp.ne.u32 %p, %word, %block;
    @%p bra MESSAGE;
    ld.param.u64 %local, [%a];
    ld.param.u64 %left, [%a+8];
    ld.param.u64 %code, [%a+16];
    ld.param.u64 %count, [%a+24];
    cvta.to.global.u64 %local, %local;
    and.b64 %t, %whose, SENT_BIT;
    setp.ne.u64 %sends, %t, 0;
    shr.u64 %t, %whose, 32;
    cvt.u32.u64 %peer, %t;
    mad.lo.u32 %pair, %rank, %size, %peer;
    mad.lo.u32 %word, %peer, %size, %rank;
    selp.b32 %pair, %pair, %word, %sends;
    mul.wide.u32 %t, %pair, BOX_BYTES;
    add.u64 %box, %boxes, %t;
    cvt.u64.u32 %t, %pair;
    mul.lo.u64 %t, %t, %letter;
    shl.b64 %t, %t, 1;
    add.u64 %box_letters, %letters, %t;
    add.u64 %t, %box, TAKEN;
    selp.b64 %own, %box, %t, %sends;
    // The thread that counts has counted the message before.
    bar.sync 0;
    ld.volatile.global.u64 %turn, [%own];

CHUNK:
    min.u64 %n, %left, %letter;
    and.b64 %parity, %turn, 1;
    mul.lo.u64 %t, %parity, %letter;
    add.u64 %slot, %box_letters, %t;
    shl.b64 %parity, %parity, 4;
    mov.u32 %bad, 0;
    setp.ne.u32 %p, %thread32, 0;
    @%p bra MET;
LOOK:
    // Who sends waits until all but one are taken, and who receives until one is there.
    @%sends ld.volatile.global.u64 %seen, [%box+TAKEN];
    @!%sends ld.volatile.global.u64 %seen, [%box];
    ld.volatile.global.u32 %word, [%stop];
    setp.ne.u32 %p, %word, 0;
    @%p bra STOPPED;
    @%sends add.u64 %seen, %seen, 2;
    setp.le.u64 %p, %seen, %turn;
    @%p bra LOOK;
    membar.sys;
    @%sends bra MET;
    add.u64 %a, %box, %parity;
    ld.volatile.global.u64 %their_code, [%a+16];
    ld.volatile.global.u64 %their_count, [%a+24];
    setp.ne.u64 %p, %their_code, %code;
    @%p bra DIFFERS;
    setp.eq.u64 %p, %their_count, %count;
    @%p bra MET;
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
    @!%sends bra RECEIVE;
COPY_OUT
    bra COPIED;
RECEIVE:
COPY_IN
COPIED:
    bar.sync 0;
    add.u64 %turn, %turn, 1;
    setp.ne.u32 %p, %thread32, 0;
    @%p bra COUNTED;
    add.u64 %a, %box, %parity;
    @%sends st.volatile.global.u64 [%a+16], %code;
    @%sends st.volatile.global.u64 [%a+24], %count;
    membar.sys;
    st.volatile.global.u64 [%own], %turn;
COUNTED:
    sub.u64 %left, %left, %n;
    add.u64 %local, %local, %n;
    setp.ne.u64 %p, %left, 0;
    @%p bra CHUNK;
    bra MESSAGE;
}
";
