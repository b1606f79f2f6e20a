//! What is different about two nodes that are of one kind.

use std::collections::HashMap;
use std::fmt::Debug;

use super::snapshot::Member;
use crate::error::{ChangedParameter, NodeParameter as P};
use crate::graph::AnyOp;
use crate::graph::operation::{Holds, Operation};
use crate::memory::Region;
use crate::op::{CopyOp, FillOp, KernelOp, MemsetRows, Op, hex};

/// Conditions and allocated addresses of the old graph, and their counterparts in the new one.
pub(super) type Counterparts = HashMap<u64, u64>;

/// The differences of two nodes, gathered.
struct Found(Vec<ChangedParameter>);

impl Found {
    fn push(&mut self, parameter: P, old: Option<String>, new: Option<String>) {
        self.0.push(ChangedParameter {
            parameter,
            old,
            new,
        });
    }

    /// Both values, if they differ.
    fn compare<T: PartialEq>(&mut self, parameter: P, old: T, new: T, say: impl Fn(T) -> String) {
        if old != new {
            self.push(parameter, Some(say(old)), Some(say(new)));
        }
    }

    fn debug<T: PartialEq + Debug>(&mut self, parameter: P, old: T, new: T) {
        self.compare(parameter, old, new, |value| format!("{value:?}"));
    }
}

/// What is different about what `old` and `new` do, their edges and what is inside of them aside.
pub(super) fn differences(
    old: &Member,
    new: &Member,
    counterparts: &Counterparts,
) -> Vec<ChangedParameter> {
    let mut found = Found(Vec::new());
    if old.kind() != new.kind() {
        found.compare(P::Kind, old.kind(), new.kind(), |kind| kind.to_string());
        return found.0;
    }
    let (was, is) = (&old.does, &new.does);
    if is.is_same_as(was) {
        return found.0;
    }
    if let (Some(was), Some(is)) = (was.launch(), is.launch()) {
        kernels(&mut found, was, is, counterparts);
        return found.0;
    }
    if let (Holds::Bodies(was), Holds::Bodies(is)) = (was.holds(), is.holds()) {
        let say = |branching: &crate::graph::conditional::Branching| branching.text();
        found.compare(P::Branching, say(was), say(is), |text| text);
        let default = |value: Option<u32>| value.map_or("none".to_owned(), |it| it.to_string());
        let (was, is) = (was.condition, is.condition);
        found.compare(
            P::ConditionDefault,
            was.default_value(),
            is.default_value(),
            default,
        );
        return found.0;
    }
    match (was, is) {
        (AnyOp::Copy(was), AnyOp::Copy(is)) => copies(&mut found, was, is, counterparts),
        (AnyOp::Fill(was), AnyOp::Fill(is)) => {
            regions(&mut found, P::To, (was.to(), is.to()), counterparts);
            let (was_rows, is_rows) = (was.rows_of_memset(), is.rows_of_memset());
            let size = |(width, height)| format!("{width}x{height}");
            let bytes = |rows: MemsetRows| (rows.width * rows.element, rows.height);
            found.compare(P::Size, bytes(was_rows), bytes(is_rows), size);
            // Between rows alone it counts.
            let pitch = |rows: MemsetRows| match rows.height {
                0 | 1 => 0,
                _ => rows.pitch,
            };
            let say = |pitch| format!("{pitch} bytes apart");
            found.compare(P::Rows, pitch(was_rows), pitch(is_rows), say);
            let value = |op: &FillOp| {
                let (value, element) = (op.value(), op.rows_of_memset().element);
                value[..element.min(value.len())].to_vec()
            };
            let say = |value: Vec<u8>| format!("{} in {} bytes", hex(&value), value.len());
            found.compare(P::Value, value(was), value(is), say);
        }
        (AnyOp::Host(was), AnyOp::Host(is)) => {
            let call = |op: &crate::HostOp| {
                let (function, data) = op.as_raw();
                (function as usize, data as usize)
            };
            let say = |(function, data)| format!("{function:#x}({data:#x})");
            found.compare(P::Call, call(was), call(is), say);
        }
        (AnyOp::RecordEvent(was), AnyOp::RecordEvent(is)) => {
            found.debug(P::Event, was.event(), is.event());
        }
        (AnyOp::WaitEvent(was), AnyOp::WaitEvent(is)) => {
            found.debug(P::Event, was.event(), is.event());
        }
        (AnyOp::Alloc(was), AnyOp::Alloc(is)) => {
            let bytes = |bytes| format!("{bytes} bytes");
            found.compare(P::Size, was.bytes(), is.bytes(), bytes);
            let place = |op: &crate::AllocOp| (op.location_of_memory(), op.peers().to_vec());
            found.debug(P::Location, place(was), place(is));
        }
        (AnyOp::Free(was), AnyOp::Free(is)) => {
            let hex = |address| format!("{address:#x}");
            let old = was.address();
            if counterparts.get(&old) != Some(&is.address()) {
                found.compare(P::Address, old, is.address(), hex);
            }
        }
        (AnyOp::Batch(was), AnyOp::Batch(is)) => {
            let (was, is) = (was.operations(), is.operations());
            for index in 0..was.len().max(is.len()) {
                let (was, is) = (was.get(index), is.get(index));
                let say = |operation| match operation {
                    Some(operation) => format!("{operation:x?}"),
                    None => "none".to_owned(),
                };
                found.compare(P::MemoryOperation(index), was, is, say);
            }
        }
        (AnyOp::SignalSemaphores(was), AnyOp::SignalSemaphores(is)) => {
            semaphores(&mut found, was.semaphores(), is.semaphores());
        }
        (AnyOp::WaitSemaphores(was), AnyOp::WaitSemaphores(is)) => {
            semaphores(&mut found, was.semaphores(), is.semaphores());
        }
        (AnyOp::Empty(_), AnyOp::Empty(_)) => {}
        // What they hold is compared by itself.
        _ if old.kind() == crate::NodeKind::Child => {}
        _ if old.is_same_node(new) => {}
        _ => found.push(P::Operation, None, None),
    }
    found.0
}

fn kernels(found: &mut Found, was: &KernelOp, is: &KernelOp, counterparts: &Counterparts) {
    let (old, new) = (was.kernel(), is.kernel());
    if old != new {
        // Functions of one name may be of two modules.
        let say =
            |kernel: &crate::Kernel, other: &crate::Kernel| match kernel.name() == other.name() {
                true => format!("`{}` at {:p}", kernel.name(), kernel.raw()),
                false => format!("`{}`", kernel.name()),
            };
        found.push(P::Function, Some(say(&old, &new)), Some(say(&new, &old)));
    }
    let by = |(x, y, z)| format!("{x}x{y}x{z}");
    found.compare(P::Grid, was.grid(), is.grid(), by);
    found.compare(P::Block, was.block(), is.block(), by);
    let bytes = |bytes| format!("{bytes} bytes");
    found.compare(
        P::SharedMemory,
        was.shared_bytes(),
        is.shared_bytes(),
        bytes,
    );
    let (taken, takes) = (old.parameters().len(), new.parameters().len());
    for index in 0..taken.max(takes) {
        // Of a launch by other code, arguments may not be known.
        let value = |op: &KernelOp| op.arguments().get(index).map(<[u8]>::to_vec);
        let (was_bytes, is_bytes) = (value(was), value(is));
        let is_counterpart = || {
            let number = |bytes: &Option<Vec<u8>>| {
                let bytes: [u8; 8] = bytes.as_deref()?.try_into().ok()?;
                Some(u64::from_ne_bytes(bytes))
            };
            let handle = number(&was_bytes).and_then(|handle| counterparts.get(&handle));
            handle.is_some() && handle.copied() == number(&is_bytes)
        };
        let is_known = was_bytes.is_some() && is_bytes.is_some();
        if is_known && (was_bytes == is_bytes || is_counterpart()) {
            continue;
        }
        let say = |bytes: Option<Vec<u8>>, has: bool| match (bytes, has) {
            (Some(bytes), _) => Some(argument(&bytes)),
            (None, true) => None,
            (None, false) => Some("none".to_owned()),
        };
        let (was, is) = (say(was_bytes, index < taken), say(is_bytes, index < takes));
        found.push(P::Argument(index), was, is);
    }
    if !same_attributes(was, is) {
        let say = |op: &KernelOp| Some(format!("{:?}", op.attributes()));
        found.push(P::Attributes, say(was), say(is));
    }
}

/// Whether both have the same attributes, in whatever order.
fn same_attributes(was: &KernelOp, is: &KernelOp) -> bool {
    let (was, is) = (was.attributes(), is.attributes());
    let within = |some: &[crate::LaunchAttribute], all: &[crate::LaunchAttribute]| {
        let is_there = |one: &crate::LaunchAttribute| all.contains(one) || *one == one.plain();
        some.iter().all(is_there)
    };
    within(was, is) && within(is, was)
}

/// The bytes of an argument: as a number, if they may be one.
fn argument(bytes: &[u8]) -> String {
    const SHOWN: usize = 16;
    match bytes.len() {
        0..=8 => hex(bytes),
        len if len <= SHOWN => format!("{bytes:02x?}"),
        len => format!("{:02x?} and {} bytes more", &bytes[..SHOWN], len - SHOWN),
    }
}

fn copies(found: &mut Found, was: &CopyOp, is: &CopyOp, counterparts: &Counterparts) {
    regions(found, P::From, (was.from(), is.from()), counterparts);
    regions(found, P::To, (was.to(), is.to()), counterparts);
    let size = |(width, height, depth)| format!("{width}x{height}x{depth}");
    found.compare(P::Size, was.size(), is.size(), size);
    let say = |rows: [usize; 10]| {
        let [
            x,
            y,
            z,
            pitch,
            planes,
            to_x,
            to_y,
            to_z,
            to_pitch,
            to_planes,
        ] = rows;
        format!(
            "from ({x}, {y}, {z}) in {pitch} bytes by {planes}, to ({to_x}, {to_y}, {to_z}) in \
             {to_pitch} bytes by {to_planes}"
        )
    };
    found.compare(P::Rows, was.rows_of_sides(), is.rows_of_sides(), say);
}

/// Where an operation reads or writes. How much of it is compared by itself.
fn regions(
    found: &mut Found,
    parameter: P,
    (was, is): (&Region, &Region),
    counterparts: &Counterparts,
) {
    if was.space() == is.space() && counterparts.get(&was.address()) == Some(&is.address()) {
        return;
    }
    let place = |region: &Region| (region.space(), region.address());
    let say = |(space, address)| format!("{space:?} memory at {address:#x}").to_lowercase();
    found.compare(parameter, place(was), place(is), say);
}

fn semaphores<T: PartialEq + Debug>(found: &mut Found, was: &[T], is: &[T]) {
    if was != is {
        found.debug(P::Semaphores, was, is);
    } else if !std::ptr::eq(was, is) {
        // What is done with them cannot be compared.
        found.push(P::Operation, None, None);
    }
}
