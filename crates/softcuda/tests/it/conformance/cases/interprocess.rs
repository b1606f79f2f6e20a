//! Memory, pools and events between processes: another process is this binary started again.

use std::fmt::Display;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr::{null, null_mut};

use crate::capture::api::{
    cuCtxRecordEvent, cuCtxWaitEvent, cuStreamBeginCapture_v2, cuStreamEndCapture,
};
use crate::conformance::api::*;
use crate::conformance::case::{Case, Line, alone};
use crate::conformance::error_name;
use crate::conformance::fixture::*;
use crate::conformance::structs::{
    Access, AllocationProperties, IpcHandle, Location, PoolProperties,
};
use crate::graphs::api::{
    cuGraphAddEventRecordNode, cuGraphAddEventWaitNode, cuGraphCreate, cuGraphInstantiateWithFlags,
    cuGraphLaunch,
};
use crate::interprocess::peer::{Channel, Peer, Role};

pub const ROLES: &[(&str, Role)] = &[
    ("conformance/memory", memory_there),
    ("conformance/event", event_there),
    ("conformance/physical", physical_there),
    ("conformance/pool", pool_there),
];

const FILE_DESCRIPTOR: u32 = 1;
const DEVICE: Location = Location { kind: 1, id: 0 };
const INTERPROCESS: u32 = 6;
const SIZE: usize = 4 << 20;

const PHYSICAL: AllocationProperties = AllocationProperties {
    kind: 1,
    handle_types: FILE_DESCRIPTOR,
    location: DEVICE,
    win32_metadata: 0,
    flags: [0; 8],
};

const POOL: PoolProperties = PoolProperties {
    kind: 1,
    handle_types: FILE_DESCRIPTOR,
    location: DEVICE,
    win32_attributes: 0,
    max_size: 0,
    usage: 0,
    reserved: [0; 54],
};

/// What the other process was answered, until it tells.
#[derive(Default)]
struct Told(Vec<String>);

impl Told {
    fn says(&mut self, what: impl Display, answer: Answer) {
        self.value(what, error_name(answer.code));
    }

    fn value(&mut self, what: impl Display, value: impl Display) {
        self.0.push(format!("{what}={value}"));
    }

    fn tell(&mut self, parent: &mut Channel) {
        parent.put(std::mem::take(&mut self.0).join(", ").as_bytes());
    }
}

fn hear(line: &mut Line, peer: &mut Peer) {
    let told = String::from_utf8_lossy(&peer.channel.get()).into_owned();
    line.value("there", format!("({told})"));
}

/// Attributes of an address, but for those that are numbers of the machine's.
unsafe fn attributes(address: u64) -> String {
    let mut texts = vec![];
    for number in [1, 2, 3, 4, 6, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 21] {
        let mut value = 0u64;
        let answer = cuPointerGetAttribute(void(&mut value), number, address);
        texts.push(match answer.code {
            0 if value == address => "self".to_string(),
            0 if matches!(number, 1 | 17) && value != 0 => "some".to_string(),
            0 => value.to_string(),
            code => error_name(code).to_string(),
        });
    }
    texts.join(" ")
}

unsafe fn first_word(address: u64) -> String {
    let mut value = 0u32;
    match cuMemcpyDtoH_v2(void(&mut value), address, 4).code {
        0 => value.to_string(),
        code => error_name(code).to_string(),
    }
}

unsafe fn memory_there(parent: &mut Channel) {
    context();
    let handles: [IpcHandle; 3] = std::array::from_fn(|_| IpcHandle(parent.array()));
    let [small, interior, large] = handles;
    let (mut told, mut address) = (Told::default(), 7);
    for flags in [0, 2, 3] {
        told.says(
            format!("flags_{flags}"),
            cuIpcOpenMemHandle_v2(&mut address, small, flags),
        );
    }
    told.says("null", cuIpcOpenMemHandle_v2(null_mut(), small, 1));
    for byte in [0, 0x5a] {
        told.says(
            format!("bytes_{byte}"),
            cuIpcOpenMemHandle_v2(&mut address, IpcHandle([byte; 64]), 1),
        );
    }
    let (mut again, mut within, mut other) = (7, 7, 7);
    told.says("open", cuIpcOpenMemHandle_v2(&mut address, small, 1));
    told.says("again", cuIpcOpenMemHandle_v2(&mut again, small, 1));
    told.value("same", again == address);
    told.says("interior", cuIpcOpenMemHandle_v2(&mut within, interior, 1));
    told.value("same", within == address);
    told.says("large", cuIpcOpenMemHandle_v2(&mut other, large, 1));
    told.value("words", first_word(address) + " " + &first_word(other));
    told.value("attributes", attributes(address));
    told.says("free", cuMemFree_v2(address));
    told.says("free_async", cuMemFreeAsync(address, 0));
    told.says(
        "handle_of_it",
        cuIpcGetMemHandle(&mut IpcHandle([0; 64]), address),
    );
    told.says("close_interior", cuIpcCloseMemHandle(other + 4));
    told.says("close_null", cuIpcCloseMemHandle(0));
    told.says("fill", cuMemsetD32_v2(address, 11, 1));
    told.says("end", cuCtxSynchronize());
    told.tell(parent);
    // Freed there.
    parent.meet();
    told.value("kept", first_word(other));
    told.says("close_large", cuIpcCloseMemHandle(other));
    told.says("close_large_twice", cuIpcCloseMemHandle(other));
    for turn in 1..=4 {
        told.says(format!("close_{turn}"), cuIpcCloseMemHandle(address));
    }
    told.says("use_closed", cuMemsetD32_v2(address, 1, 1));
    told.says("open_anew", cuIpcOpenMemHandle_v2(&mut address, small, 1));
    told.value("word", first_word(address));
    told.tell(parent);
}

unsafe fn event_there(parent: &mut Channel) {
    context();
    let handle = IpcHandle(parent.array());
    let (mut told, mut event, mut again) = (Told::default(), 0, 0);
    for byte in [0, 0x5a] {
        told.says(
            format!("bytes_{byte}"),
            cuIpcOpenEventHandle(&mut event, IpcHandle([byte; 64])),
        );
    }
    told.says("null", cuIpcOpenEventHandle(null_mut(), handle));
    told.says("open", cuIpcOpenEventHandle(&mut event, handle));
    told.says("again", cuIpcOpenEventHandle(&mut again, handle));
    told.value("same", event == again);
    told.says("query", cuEventQuery(event));
    told.says("synchronize", cuEventSynchronize(event));
    let mut other = IpcHandle([0; 64]);
    told.says("handle_of_it", cuIpcGetEventHandle(&mut other, event));
    told.tell(parent);
    // Recorded there, and held up.
    parent.meet();
    told.says("query_held", cuEventQuery(event));
    told.says("query_held_again", cuEventQuery(again));
    let (waits, records) = (stream(), stream());
    told.says("wait", cuStreamWaitEvent(waits, event, 0));
    told.says("waiting", cuStreamQuery(waits));
    told.tell(parent);
    told.says("synchronize_held", cuEventSynchronize(event));
    told.says("waited", cuStreamSynchronize(waits));
    told.says("query_ended", cuEventQuery(again));
    let gate = Gate::close(records);
    told.says("record", cuEventRecord(event, records));
    told.tell(parent);
    parent.meet();
    gate.open();
    told.says("recorded", cuStreamSynchronize(records));
    let mut time = 0.0;
    told.says("elapsed", cuEventElapsedTime(&mut time, event, again));
    // Destroyed there.
    parent.meet();
    told.says("query_orphan", cuEventQuery(event));
    told.says("record_orphan", cuEventRecord(event, records));
    told.says("synchronize_orphan", cuEventSynchronize(event));
    told.says("destroy", cuEventDestroy_v2(event));
    told.says("query_other", cuEventQuery(again));
    told.tell(parent);
}

unsafe fn mapped(told: &mut Told, handle: u64) -> u64 {
    let mut address = 0;
    let access = Access {
        location: DEVICE,
        flags: 3,
    };
    cuMemAddressReserve(&mut address, SIZE, 0, 0, 0).must();
    told.says("map_part", cuMemMap(address, SIZE / 2, 0, handle, 0));
    told.says("map", cuMemMap(address, SIZE, 0, handle, 0));
    told.says("access", cuMemSetAccess(address, SIZE, &access, 1));
    address
}

unsafe fn properties_of(handle: u64) -> String {
    let mut properties = PHYSICAL;
    match cuMemGetAllocationPropertiesFromHandle(&mut properties, handle).code {
        0 => format!(
            "{} {} {} {}",
            properties.kind,
            properties.handle_types,
            properties.location.kind,
            properties.location.id
        ),
        code => error_name(code).to_string(),
    }
}

unsafe fn physical_there(parent: &mut Channel) {
    context();
    let fd = parent.descriptor();
    let number = fd.as_raw_fd() as usize;
    let (mut told, mut first, mut second) = (Told::default(), 0, 0);
    let import = cuMemImportFromShareableHandle;
    told.says("import", import(&mut first, number, FILE_DESCRIPTOR));
    told.says("again", import(&mut second, number, FILE_DESCRIPTOR));
    told.value("same", first == second);
    drop(fd);
    told.value("properties", properties_of(first));
    let mut out = -1i32;
    told.says(
        "export",
        cuMemExportToShareableHandle(void(&mut out), first, FILE_DESCRIPTOR, 0),
    );
    let address = mapped(&mut told, first);
    told.value("words", first_word(address));
    told.value("last", first_word(address + SIZE as u64 - 4));
    told.value("attributes", attributes(address));
    told.says(
        "handle_of_it",
        cuIpcGetMemHandle(&mut IpcHandle([0; 64]), address),
    );
    told.says("fill", cuMemsetD32_v2(address, 33, 1));
    told.says("end", cuCtxSynchronize());
    told.tell(parent);
    parent.meet();
    told.value("kept", first_word(address));
    told.says("release", cuMemRelease(first));
    told.says("release_other", cuMemRelease(second));
    told.says("release_again", cuMemRelease(second));
    told.value("mapped", first_word(address));
    told.says("unmap", cuMemUnmap(address, SIZE));
    told.tell(parent);
}

unsafe fn pool_there(parent: &mut Channel) {
    context();
    let fd = parent.descriptor();
    let number = fd.as_raw_fd() as usize;
    let (large, small) = (parent.array(), parent.array());
    let (mut told, mut pool, mut again, mut address) = (Told::default(), 0, 0, 7);
    let import = cuMemPoolImportFromShareableHandle;
    let null_device = std::fs::File::open("/dev/null").expect("every system has it");
    for (what, number, kind, flags) in [
        ("flags", number, FILE_DESCRIPTOR, 1),
        ("type_0", number, 0, 0),
        ("no_descriptor", usize::MAX, FILE_DESCRIPTOR, 0),
        (
            "device",
            null_device.as_raw_fd() as usize,
            FILE_DESCRIPTOR,
            0,
        ),
    ] {
        told.says(what, import(&mut pool, number, kind, flags));
    }
    told.says("null", import(null_mut(), number, FILE_DESCRIPTOR, 0));
    told.says(
        "as_memory",
        cuMemImportFromShareableHandle(&mut address, number, FILE_DESCRIPTOR),
    );
    told.says("import", import(&mut pool, number, FILE_DESCRIPTOR, 0));
    told.says("again", import(&mut again, number, FILE_DESCRIPTOR, 0));
    told.value("same", pool == again);
    drop(fd);
    let (stream, mut value) = (stream(), 0u64);
    for attribute in 1..=8 {
        let answer = cuMemPoolGetAttribute(pool, attribute, void(&mut value));
        told.says(format!("attribute_{attribute}"), answer);
    }
    told.says("set", cuMemPoolSetAttribute(pool, 4, void(&mut value)));
    told.says("trim", cuMemPoolTrimTo(pool, 0));
    let mut flags = 7;
    told.says(
        "access",
        cuMemPoolGetAccess(&mut flags, pool, &mut { DEVICE }),
    );
    told.value("flags", flags);
    told.says("use", cuDeviceSetMemPool(0, pool));
    told.says(
        "alloc",
        cuMemAllocFromPoolAsync(&mut address, 1000, pool, stream),
    );
    let mut out = -1i32;
    told.says(
        "export",
        cuMemPoolExportToShareableHandle(void(&mut out), pool, FILE_DESCRIPTOR, 0),
    );
    for (what, data) in [("zeros", [0; 64]), ("bytes", [0x5a; 64])] {
        told.says(what, cuMemPoolImportPointer(&mut address, pool, &data));
    }
    told.says(
        "null_data",
        cuMemPoolImportPointer(&mut address, pool, null()),
    );
    told.says("null_out", cuMemPoolImportPointer(null_mut(), pool, &large));
    let mut default = 0;
    cuDeviceGetDefaultMemPool(&mut default, 0).must();
    told.says(
        "elsewhere",
        cuMemPoolImportPointer(&mut address, default, &large),
    );
    let (mut twice, mut other) = (7, 7);
    told.says(
        "pointer",
        cuMemPoolImportPointer(&mut address, pool, &large),
    );
    told.says(
        "pointer_again",
        cuMemPoolImportPointer(&mut twice, pool, &large),
    );
    told.value("same", address == twice);
    told.says("small", cuMemPoolImportPointer(&mut other, pool, &small));
    told.value("attributes", attributes(address));
    told.value("words", first_word(address) + " " + &first_word(other));
    told.says(
        "export_pointer",
        cuMemPoolExportPointer(&mut [0; 64], address),
    );
    told.says(
        "handle_of_it",
        cuIpcGetMemHandle(&mut IpcHandle([0; 64]), address),
    );
    told.says("fill", cuMemsetD32Async(address, 44, 1, stream));
    told.says("end", cuStreamSynchronize(stream));
    told.says("destroy_in_use", cuMemPoolDestroy(pool));
    told.says("free", cuMemFreeAsync(address, stream));
    told.says("end", cuStreamSynchronize(stream));
    told.says("free_twice", cuMemFreeAsync(address, stream));
    told.says("use_freed", cuMemsetD32_v2(address, 1, 1));
    told.says("free_small", cuMemFree_v2(other));
    told.says("destroy", cuMemPoolDestroy(pool));
    told.says("destroy_again", cuMemPoolDestroy(pool));
    told.tell(parent);
}

pub const CASES: &[Case] = &[
    alone!("interprocess/memory/handles", |line| {
        context();
        let address = memory(1000);
        let (mut handle, mut again, mut opened) = (IpcHandle([0; 64]), IpcHandle([0; 64]), 7);
        line.says(cuIpcGetMemHandle(&mut handle, address));
        line.says_as("again", cuIpcGetMemHandle(&mut again, address));
        line.value("same", handle.0 == again.0);
        line.says_as("interior", cuIpcGetMemHandle(&mut again, address + 512));
        line.value("same", handle.0 == again.0);
        line.says_as("other", cuIpcGetMemHandle(&mut again, memory(1000)));
        line.value("same", handle.0 == again.0);
        let mut pooled = 0;
        cuMemAllocAsync(&mut pooled, 64, 0).must();
        line.says_as("managed", cuIpcGetMemHandle(&mut again, managed(64)));
        line.says_as("pooled", cuIpcGetMemHandle(&mut again, pooled));
        line.says_as("null", cuIpcGetMemHandle(null_mut(), address));
        line.says_as("open_here", cuIpcOpenMemHandle_v2(&mut opened, handle, 1));
        line.says_as(
            "open_here_flags",
            cuIpcOpenMemHandle_v2(&mut opened, handle, 0),
        );
        line.says_as("close_here", cuIpcCloseMemHandle(address));
        line.says_as("fill", cuMemsetD32_v2(address, 5, 250));
        line.value("word", word(address + 996));
        line.says_as("free", cuMemFree_v2(address));
    }),
    alone!("interprocess/memory/opened", |line| {
        context();
        let (small, large) = (memory(1000), memory(SIZE));
        fill_words(small, 1, 250);
        fill_words(large, 2, SIZE / 4);
        let mut peer = Peer::start("conformance/memory");
        for address in [small, small + 512, large] {
            let mut handle = IpcHandle([0; 64]);
            cuIpcGetMemHandle(&mut handle, address).must();
            peer.channel.put(&handle.0);
        }
        hear(line, &mut peer);
        line.value("word", word(small));
        line.says_as("free", cuMemFree_v2(large));
        peer.channel.meet();
        hear(line, &mut peer);
        line.value("ends_well", peer.ends_well());
    }),
    alone!("interprocess/event/handles", |line| {
        context();
        let (mut event, mut spinning, mut opened) = (0, 0, 0);
        let (mut handle, mut again) = (IpcHandle([0; 64]), IpcHandle([0; 64]));
        line.says_as("timed", cuEventCreate(&mut event, 4));
        line.says(cuEventCreate(&mut event, INTERPROCESS));
        line.says_as("blocking", cuEventCreate(&mut spinning, INTERPROCESS | 1));
        line.says(cuIpcGetEventHandle(&mut handle, event));
        line.says_as("again", cuIpcGetEventHandle(&mut again, event));
        line.value("same", handle.0 == again.0);
        line.says_as("other", cuIpcGetEventHandle(&mut again, spinning));
        line.says_as("null_out", cuIpcGetEventHandle(null_mut(), event));
        line.says_as("null_event", cuIpcGetEventHandle(&mut again, 0));
        line.says_as("open_here", cuIpcOpenEventHandle(&mut opened, handle));
        line.says_as("query", cuEventQuery(event));
        let stream = stream();
        let gate = Gate::close(stream);
        line.says(cuEventRecord(event, stream));
        line.says_as("query_held", cuEventQuery(event));
        gate.open();
        line.says(cuEventSynchronize(event));
        line.says_as("query_ended", cuEventQuery(event));
        line.says(cuEventDestroy_v2(event));
    }),
    alone!("interprocess/event/opened", |line| {
        context();
        let (mut event, mut handle) = (0, IpcHandle([0; 64]));
        cuEventCreate(&mut event, INTERPROCESS).must();
        cuIpcGetEventHandle(&mut handle, event).must();
        let mut peer = Peer::start("conformance/event");
        peer.channel.put(&handle.0);
        hear(line, &mut peer);
        let (first, second) = (stream(), stream());
        let gate = Gate::close(first);
        line.says(cuEventRecord(event, first));
        peer.channel.meet();
        hear(line, &mut peer);
        gate.open();
        hear(line, &mut peer);
        line.says_as("query_held_there", cuEventQuery(event));
        line.says(cuStreamWaitEvent(second, event, 0));
        line.says_as("waiting", cuStreamQuery(second));
        peer.channel.meet();
        line.says(cuEventSynchronize(event));
        line.says(cuStreamSynchronize(second));
        line.says(cuEventDestroy_v2(event));
        peer.channel.meet();
        hear(line, &mut peer);
        line.value("ends_well", peer.ends_well());
    }),
    alone!("interprocess/event/captured", |line| {
        const RELAXED: u32 = 2;
        context();
        let (mut event, stream) = (0, stream());
        cuEventCreate(&mut event, INTERPROCESS).must();
        for recorded in [false, true] {
            if recorded {
                cuEventRecord(event, stream).must();
                cuStreamSynchronize(stream).must();
            }
            let mut graph = 0;
            cuStreamBeginCapture_v2(stream, RELAXED).must();
            line.says(cuEventRecord(event, stream));
            line.says(cuStreamEndCapture(stream, &mut graph));
            cuStreamBeginCapture_v2(stream, RELAXED).must();
            line.says(cuStreamWaitEvent(stream, event, 0));
            line.says(cuStreamEndCapture(stream, &mut graph));
            cuStreamBeginCapture_v2(stream, RELAXED).must();
            line.says_as("record_external", cuEventRecordWithFlags(event, stream, 1));
            line.says_as("wait_external", cuStreamWaitEvent(stream, event, 1));
            line.says(cuStreamEndCapture(stream, &mut graph));
        }
        let (mut graph, mut record, mut wait, mut exec) = (0, 0, 0, 0);
        cuGraphCreate(&mut graph, 0).must();
        line.says(cuGraphAddEventRecordNode(
            &mut record,
            graph,
            null(),
            0,
            event,
        ));
        line.says(cuGraphAddEventWaitNode(&mut wait, graph, &record, 1, event));
        line.says(cuGraphInstantiateWithFlags(&mut exec, graph, 0));
        line.says(cuGraphLaunch(exec, stream));
        line.says(cuStreamSynchronize(stream));
        line.says(cuEventQuery(event));
        let gate = Gate::close(stream);
        line.says(cuGraphLaunch(exec, stream));
        line.says_as("held", cuEventQuery(event));
        gate.open();
        line.says(cuEventSynchronize(event));
    }),
    alone!("interprocess/event/of_a_context", |line| {
        let own = context();
        let (mut event, stream) = (0, stream());
        cuEventCreate(&mut event, INTERPROCESS).must();
        line.says(cuCtxRecordEvent(own, event));
        line.says(cuEventSynchronize(event));
        let gate = Gate::close(stream);
        line.says(cuCtxRecordEvent(own, event));
        line.says_as("held", cuEventQuery(event));
        gate.open();
        line.says(cuEventSynchronize(event));
        line.says(cuCtxWaitEvent(own, event));
        line.says(cuCtxSynchronize());
    }),
    alone!("interprocess/physical/export", |line| {
        context();
        let (mut handle, mut other, mut fd) = (0, 0, -1i32);
        line.says(cuMemCreate(&mut handle, SIZE, &PHYSICAL, 0));
        let export = cuMemExportToShareableHandle;
        line.says(export(void(&mut fd), handle, FILE_DESCRIPTOR, 0));
        let owned = OwnedFd::from_raw_fd(fd);
        line.value(
            "closed_on_exec",
            libc::fcntl(fd, libc::F_GETFD) & libc::FD_CLOEXEC != 0,
        );
        line.says_as("flags", export(void(&mut fd), handle, FILE_DESCRIPTOR, 1));
        for kind in [0, 2, 3, 8] {
            line.says_as(
                format!("type_{kind}"),
                export(void(&mut fd), handle, kind, 0),
            );
        }
        line.says_as("null_out", export(null_mut(), handle, FILE_DESCRIPTOR, 0));
        line.says_as("null_handle", export(void(&mut fd), 0, FILE_DESCRIPTOR, 0));
        let plain = AllocationProperties {
            handle_types: 0,
            ..PHYSICAL
        };
        cuMemCreate(&mut other, SIZE, &plain, 0).must();
        line.says_as(
            "unexportable",
            export(void(&mut fd), other, FILE_DESCRIPTOR, 0),
        );
        for handle_types in [2, 4, 8, 9] {
            let properties = AllocationProperties {
                handle_types,
                ..PHYSICAL
            };
            line.says_as(
                format!("create_{handle_types}"),
                cuMemCreate(&mut other, SIZE, &properties, 0),
            );
        }
        for (kind, id) in [(2, 0), (3, 0), (3, 1), (4, 0)] {
            let properties = AllocationProperties {
                location: Location { kind, id },
                ..PHYSICAL
            };
            line.says_as(
                format!("create_at_{kind}_{id}"),
                cuMemCreate(&mut other, SIZE, &properties, 0),
            );
        }
        let (import, number) = (cuMemImportFromShareableHandle, owned.as_raw_fd() as usize);
        let mut imported = 0;
        line.says_as(
            "import_here",
            import(&mut imported, number, FILE_DESCRIPTOR),
        );
        line.value("same", imported == handle);
        line.value("properties", properties_of(imported));
        line.says_as(
            "export_imported",
            export(void(&mut fd), imported, FILE_DESCRIPTOR, 0),
        );
        for kind in [0, 2, 4] {
            line.says_as(
                format!("import_type_{kind}"),
                import(&mut other, number, kind),
            );
        }
        line.says_as("import_null", import(null_mut(), number, FILE_DESCRIPTOR));
        let device = std::fs::File::open("/dev/null").expect("every system has it");
        line.says_as(
            "import_device",
            import(&mut other, device.as_raw_fd() as usize, FILE_DESCRIPTOR),
        );
        line.says_as(
            "import_no_descriptor",
            import(&mut other, usize::MAX, FILE_DESCRIPTOR),
        );
    }),
    alone!("interprocess/physical/imported", |line| {
        context();
        let (mut handle, mut fd, mut own) = (0, -1i32, Told::default());
        cuMemCreate(&mut handle, SIZE, &PHYSICAL, 0).must();
        cuMemExportToShareableHandle(void(&mut fd), handle, FILE_DESCRIPTOR, 0).must();
        let fd = OwnedFd::from_raw_fd(fd);
        let address = mapped(&mut own, handle);
        line.value("attributes", attributes(address));
        fill_words(address, 1, SIZE / 4);
        let mut peer = Peer::start("conformance/physical");
        peer.channel.put_descriptor(fd.as_raw_fd());
        hear(line, &mut peer);
        line.value("word", word(address));
        line.says(cuMemRelease(handle));
        line.says(cuMemUnmap(address, SIZE));
        peer.channel.meet();
        hear(line, &mut peer);
        line.value("ends_well", peer.ends_well());
    }),
    alone!("interprocess/pool/export", |line| {
        context();
        let (mut pool, mut fd, stream) = (0, -1i32, stream());
        line.says(cuMemPoolCreate(&mut pool, &POOL));
        let export = cuMemPoolExportToShareableHandle;
        line.says(export(void(&mut fd), pool, FILE_DESCRIPTOR, 0));
        let owned = OwnedFd::from_raw_fd(fd);
        line.value(
            "closed_on_exec",
            libc::fcntl(fd, libc::F_GETFD) & libc::FD_CLOEXEC != 0,
        );
        line.says_as("flags", export(void(&mut fd), pool, FILE_DESCRIPTOR, 1));
        for kind in [0, 2, 8] {
            line.says_as(format!("type_{kind}"), export(void(&mut fd), pool, kind, 0));
        }
        line.says_as("null_out", export(null_mut(), pool, FILE_DESCRIPTOR, 0));
        let mut default = 0;
        cuDeviceGetDefaultMemPool(&mut default, 0).must();
        line.says_as(
            "default",
            export(void(&mut fd), default, FILE_DESCRIPTOR, 0),
        );
        for (kind, location) in [(1, 2), (1, 3), (1, 4), (2, 0), (2, 1), (2, 3)] {
            let properties = PoolProperties {
                kind,
                location: Location {
                    kind: location,
                    id: 0,
                },
                ..POOL
            };
            line.says_as(
                format!("create_{kind}_{location}"),
                cuMemPoolCreate(&mut default, &properties),
            );
        }
        let (mut address, mut plain, mut data) = (0, 0, [0; 64]);
        cuMemAllocFromPoolAsync(&mut address, 5000, pool, stream).must();
        cuMemAllocAsync(&mut plain, 5000, stream).must();
        line.value("attributes", attributes(address));
        line.says(cuMemPoolExportPointer(&mut data, address));
        let mut wrong = [0; 64];
        line.says_as(
            "interior",
            cuMemPoolExportPointer(&mut wrong, address + 512),
        );
        line.says_as("of_default", cuMemPoolExportPointer(&mut wrong, plain));
        line.says_as("of_none", cuMemPoolExportPointer(&mut wrong, memory(64)));
        line.says_as("wild", cuMemPoolExportPointer(&mut wrong, WILD));
        line.says_as("null", cuMemPoolExportPointer(null_mut(), address));
        let (mut imported, number) = (0, owned.as_raw_fd() as usize);
        line.says_as(
            "import_here",
            cuMemPoolImportFromShareableHandle(&mut imported, number, FILE_DESCRIPTOR, 0),
        );
        line.value("same", imported == pool);
        let mut here = 0;
        line.says_as(
            "pointer_here",
            cuMemPoolImportPointer(&mut here, imported, &data),
        );
        line.value("same", here == address);
        line.says_as(
            "pointer_into_own",
            cuMemPoolImportPointer(&mut here, pool, &data),
        );
        line.says_as("free", cuMemFreeAsync(here, stream));
        line.says_as("end", cuStreamSynchronize(stream));
        line.says_as("destroy", cuMemPoolDestroy(imported));
    }),
    alone!("interprocess/pool/imported", |line| {
        context();
        let (mut pool, mut fd, stream) = (0, -1i32, stream());
        cuMemPoolCreate(&mut pool, &POOL).must();
        cuMemPoolExportToShareableHandle(void(&mut fd), pool, FILE_DESCRIPTOR, 0).must();
        let fd = OwnedFd::from_raw_fd(fd);
        let mut peer = Peer::start("conformance/pool");
        peer.channel.put_descriptor(fd.as_raw_fd());
        let mut addresses = [0; 2];
        for (size, address) in [100_000, 3000].into_iter().zip(&mut addresses) {
            let mut data = [0; 64];
            cuMemAllocFromPoolAsync(address, size, pool, stream).must();
            cuMemsetD32Async(*address, size as u32, size / 4, stream).must();
            cuStreamSynchronize(stream).must();
            cuMemPoolExportPointer(&mut data, *address).must();
            peer.channel.put(&data);
        }
        hear(line, &mut peer);
        line.value("word", word(addresses[0]));
        line.says_as("free", cuMemFreeAsync(addresses[0], stream));
        line.says_as("end", cuStreamSynchronize(stream));
        let mut used = 0u64;
        cuMemPoolGetAttribute(pool, 7, void(&mut used)).must();
        line.value("used", used);
        line.says_as("destroy", cuMemPoolDestroy(pool));
        line.value("ends_well", peer.ends_well());
    }),
];
