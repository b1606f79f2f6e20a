//! Events of one process in another.

use super::peer::{Channel, Peer, Role};
use crate::conformance::api::*;
use crate::conformance::fixture::*;
use crate::conformance::structs::IpcHandle;

pub const ROLES: &[(&str, Role)] = &[
    ("events/waiter", wait_for_the_owner),
    ("events/recorder", record_and_stop),
];

const NOT_READY: u32 = 600;
/// Between processes, and so without times.
const INTERPROCESS: u32 = 6;

unsafe fn shared_event() -> (Handle, IpcHandle) {
    let (mut event, mut handle) = (0, IpcHandle([0; 64]));
    cuEventCreate(&mut event, INTERPROCESS).must();
    cuIpcGetEventHandle(&mut handle, event).must();
    (event, handle)
}

unsafe fn opened_event(parent: &mut Channel) -> Handle {
    let mut event = 0;
    cuIpcOpenEventHandle(&mut event, IpcHandle(parent.array())).must();
    event
}

unsafe fn wait_for_the_owner(parent: &mut Channel) {
    context();
    let event = opened_event(parent);
    let (memory, stream) = (memory(4), stream());
    fill_words(memory, 0, 1);
    assert_eq!(cuEventQuery(event).code, NOT_READY);
    cuStreamWaitEvent(stream, event, 0).must();
    cuMemsetD32Async(memory, 1, 1, stream).must();
    assert_eq!(cuStreamQuery(stream).code, NOT_READY);
    parent.meet();
    cuEventSynchronize(event).must();
    cuStreamSynchronize(stream).must();
    assert_eq!(word(memory), 1);
    // The same in the other direction.
    let gate = Gate::close(stream);
    cuEventRecord(event, stream).must();
    parent.meet();
    parent.meet();
    gate.open();
    cuStreamSynchronize(stream).must();
    cuEventDestroy_v2(event).must();
}

#[test]
fn processes_wait_for_each_other() {
    unsafe {
        context();
        let (event, handle) = shared_event();
        let (first, second) = (stream(), stream());
        let gate = Gate::close(first);
        cuEventRecord(event, first).must();
        let mut peer = Peer::start("events/waiter");
        peer.channel.put(&handle.0);
        peer.channel.meet();
        assert_eq!(cuEventQuery(event).code, NOT_READY);
        gate.open();
        peer.channel.meet();
        assert_eq!(cuEventQuery(event).code, NOT_READY);
        cuStreamWaitEvent(second, event, 0).must();
        assert_eq!(cuStreamQuery(second).code, NOT_READY);
        peer.channel.meet();
        cuStreamSynchronize(second).must();
        cuEventSynchronize(event).must();
        assert!(peer.ends_well());
        cuEventDestroy_v2(event).must();
    }
}

unsafe fn record_and_stop(parent: &mut Channel) {
    context();
    let event = opened_event(parent);
    let stream = stream();
    let _closed = Gate::close(stream);
    cuEventRecord(event, stream).must();
    parent.meet();
    loop {
        std::thread::park();
    }
}

/// What a process recorded that was killed is not waited for.
#[test]
fn a_process_that_is_gone_holds_up_nobody() {
    unsafe {
        context();
        let (event, handle) = shared_event();
        let mut peer = Peer::start("events/recorder");
        peer.channel.put(&handle.0);
        peer.channel.meet();
        if crate::driver::driver() == crate::driver::Driver::Software {
            assert_eq!(cuEventQuery(event).code, NOT_READY);
            peer.kill();
            cuEventSynchronize(event).must();
        } else {
            // A real driver waits on the device, which may be for ever.
            peer.kill();
        }
        cuEventDestroy_v2(event).must();
    }
}

/// An event between processes is an event within one, too: in streams, and as a node of a graph.
#[test]
fn within_a_process_it_is_an_event_like_others() {
    unsafe {
        context();
        let (event, _) = shared_event();
        let (first, second, memory) = (stream(), stream(), memory(4));
        fill_words(memory, 0, 1);
        for round in 1..20 {
            let into = pinned(4);
            let gate = Gate::close(first);
            cuMemsetD32Async(memory, round, 1, first).must();
            cuEventRecord(event, first).must();
            cuStreamWaitEvent(second, event, 0).must();
            cuMemcpyDtoHAsync_v2(into, memory, 4, second).must();
            gate.open();
            cuStreamSynchronize(second).must();
            assert_eq!(*into.cast::<u32>(), round);
            cuMemFreeHost(into).must();
        }
        cuEventDestroy_v2(event).must();
    }
}
