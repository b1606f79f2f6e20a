//! Programs made up at random: legal ones, whose graph must say what streams and events say, and
//! any at all, after which streams must be of use.

use std::collections::BTreeSet;

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

use super::*;

const STREAMS: usize = 4;
const EVENTS: usize = 3;

/// Tries programs; a failure shows the smallest that fails.
fn try_all<S: Strategy>(
    cases: u32,
    programs: S,
    run: impl Fn(S::Value) -> Result<(), TestCaseError>,
) {
    let config = Config {
        cases,
        failure_persistence: None,
        ..Config::default()
    };
    let tried = TestRunner::new(config).run(&programs, run);
    tried.unwrap_or_else(|failure| panic!("{failure}"));
}

/// A step of a legal program.
#[derive(Clone, Copy, Debug)]
enum Step {
    Launch(usize),
    Record(usize, usize),
    Wait(usize, usize),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => (0..STREAMS).prop_map(Step::Launch),
        3 => (0..STREAMS, 0..EVENTS).prop_map(|(stream, event)| Step::Record(stream, event)),
        3 => (0..STREAMS, 0..EVENTS).prop_map(|(stream, event)| Step::Wait(stream, event)),
    ];
    prop::collection::vec(step, 0..40)
}

/// What streams and events say: for each launch the launches that come before it.
#[derive(Default)]
struct Model {
    before: Vec<BTreeSet<usize>>,
    /// What each stream has been given, and what each event is, with all that comes before; `None`
    /// outside of the capture.
    streams: [Option<BTreeSet<usize>>; STREAMS],
    events: [Option<BTreeSet<usize>>; EVENTS],
}

/// The nodes of a graph that can be reached backwards from each.
unsafe fn reachable(graph: Handle) -> Vec<BTreeSet<usize>> {
    let mut before = vec![BTreeSet::new(); nodes(graph).len()];
    // Handles rise, and captures add no edge from a later node.
    for (from, to) in edges(graph) {
        assert!(from < to);
    }
    for to in 0..before.len() {
        for (from, _) in edges(graph).into_iter().filter(|edge| edge.1 == to) {
            let more: Vec<usize> = before[from].iter().copied().chain([from]).collect();
            before[to].extend(more);
        }
    }
    before
}

#[test]
fn a_graph_orders_what_streams_and_events_order() {
    alone(|| unsafe {
        context();
        let empty = function(c"empty");
        let streams: [Handle; STREAMS] = std::array::from_fn(|_| stream());
        try_all(500, steps(), |steps| {
            let events: [Handle; EVENTS] = std::array::from_fn(|_| event());
            let mut model = Model::default();
            model.streams[0] = Some(BTreeSet::new());
            begin(streams[0], THREAD_LOCAL);
            let join = (1..STREAMS).flat_map(|at| [Step::Record(at, 0), Step::Wait(0, 0)]);
            for step in steps.into_iter().chain(join) {
                match step {
                    Step::Launch(at) => {
                        let Some(given) = &mut model.streams[at] else {
                            continue;
                        };
                        let number = model.before.len();
                        model.before.push(given.clone());
                        given.insert(number);
                        launch(empty, 1, 1, streams[at], &mut []).must();
                    }
                    Step::Record(at, event) => {
                        let Some(given) = &model.streams[at] else {
                            continue;
                        };
                        model.events[event] = Some(given.clone());
                        cuEventRecord(events[event], streams[at]).must();
                    }
                    Step::Wait(at, event) => {
                        cuStreamWaitEvent(streams[at], events[event], 0).must();
                        if let Some(recorded) = &model.events[event] {
                            let given = model.streams[at].get_or_insert_default();
                            given.extend(recorded);
                        }
                    }
                }
            }
            let states: Vec<u32> = streams.iter().map(|&stream| status(stream)).collect();
            let expected: Vec<u32> = model.streams.iter().map(|it| it.is_some().into()).collect();
            prop_assert_eq!(states, expected);
            let graph = end(streams[0]);
            prop_assert_eq!(reachable(graph), model.before);
            run_once(graph, streams[0]);
            cuGraphDestroy(graph).must();
            Ok(())
        });
    });
}

/// A call of a program that need not make sense.
#[derive(Clone, Copy, Debug)]
enum Call {
    Begin(usize, u32),
    BeginTo(usize),
    End(usize),
    EndElsewhere(usize),
    Launch(usize),
    NoBlocks(usize),
    Fill(usize),
    Host(usize),
    Alloc(usize),
    Record(usize, usize, bool),
    Wait(usize, usize, bool),
    Query(usize),
    EventQuery(usize),
    Unsafe,
    UnsafeElsewhere,
    Context,
    Exchange(u32),
    Update(usize, usize, bool),
    Instantiate(usize),
    Renew(usize),
    RenewEvent(usize),
    Legacy,
}

fn calls() -> impl Strategy<Value = Vec<Call>> {
    let stream = || 0..STREAMS;
    let call = prop_oneof![
        4 => (stream(), 0u32..3).prop_map(|(at, mode)| Call::Begin(at, mode)),
        1 => stream().prop_map(Call::BeginTo),
        2 => stream().prop_map(Call::End),
        1 => stream().prop_map(Call::EndElsewhere),
        4 => stream().prop_map(Call::Launch),
        1 => stream().prop_map(Call::NoBlocks),
        1 => stream().prop_map(Call::Fill),
        1 => stream().prop_map(Call::Host),
        1 => stream().prop_map(Call::Alloc),
        4 => (stream(), 0..EVENTS, prop::bool::weighted(0.1)).prop_map(|(at, event, external)| Call::Record(at, event, external)),
        4 => (stream(), 0..EVENTS, prop::bool::weighted(0.1)).prop_map(|(at, event, external)| Call::Wait(at, event, external)),
        1 => stream().prop_map(Call::Query),
        1 => (0..EVENTS).prop_map(Call::EventQuery),
        1 => Just(Call::Unsafe),
        1 => Just(Call::UnsafeElsewhere),
        1 => Just(Call::Context),
        1 => (0u32..3).prop_map(Call::Exchange),
        2 => (stream(), stream(), any::<bool>()).prop_map(|(at, of, set)| Call::Update(at, of, set)),
        1 => stream().prop_map(Call::Instantiate),
        1 => stream().prop_map(Call::Renew),
        1 => (0..EVENTS).prop_map(Call::RenewEvent),
        1 => Just(Call::Legacy),
    ];
    prop::collection::vec(call, 0..60)
}

struct World {
    context: Handle,
    empty: Handle,
    pointer: u64,
    counter: &'static AtomicU32,
    streams: [Handle; STREAMS],
    events: [Handle; EVENTS],
}

impl World {
    /// A stream, now and then one that waits for the legacy stream.
    unsafe fn stream(at: usize) -> Handle {
        let mut stream = 0;
        let flags = if at == STREAMS - 1 { 0 } else { NON_BLOCKING };
        cuStreamCreate(&mut stream, flags).must();
        stream
    }

    unsafe fn elsewhere(&self, f: impl FnOnce() + Send) {
        let context = self.context;
        let call = move || {
            cuCtxSetCurrent(context).must();
            f();
        };
        std::thread::scope(|scope| scope.spawn(call).join().unwrap());
    }

    unsafe fn make(&mut self, call: Call) {
        let stream = |at: usize| self.streams[at];
        let flag = |external: bool| u32::from(external) * EXTERNAL;
        match call {
            Call::Begin(at, mode) => cuStreamBeginCapture_v2(stream(at), mode).ignore(),
            Call::BeginTo(at) => {
                let (graph, none) = (graph(), std::ptr::null());
                cuStreamBeginCaptureToGraph(stream(at), graph, none, none.cast(), 0, RELAXED)
                    .ignore();
            }
            Call::End(at) => cuStreamEndCapture(stream(at), &mut 0).ignore(),
            Call::EndElsewhere(at) => {
                let stream = stream(at);
                self.elsewhere(|| cuStreamEndCapture(stream, &mut 0).ignore());
            }
            Call::Launch(at) => launch(self.empty, 1, 1, stream(at), &mut []).ignore(),
            Call::NoBlocks(at) => launch(self.empty, 0, 1, stream(at), &mut []).ignore(),
            Call::Fill(at) => cuMemsetD32Async(self.pointer, 1, 1, stream(at)).ignore(),
            Call::Host(at) => {
                cuLaunchHostFunc(stream(at), Some(add_one), pointer_to(self.counter)).ignore();
            }
            Call::Alloc(at) => {
                let mut taken = 0;
                if cuMemAllocAsync(&mut taken, 64, stream(at)).code == 0 {
                    cuMemFreeAsync(taken, stream(at)).ignore();
                }
            }
            Call::Record(at, event, external) => {
                cuEventRecordWithFlags(self.events[event], stream(at), flag(external)).ignore();
            }
            Call::Wait(at, event, external) => {
                cuStreamWaitEvent(stream(at), self.events[event], flag(external)).ignore();
            }
            Call::Query(at) => cuStreamQuery(stream(at)).ignore(),
            Call::EventQuery(event) => cuEventQuery(self.events[event]).ignore(),
            Call::Unsafe => cuMemFree_v2(0).ignore(),
            Call::UnsafeElsewhere => self.elsewhere(|| cuMemFree_v2(0).ignore()),
            Call::Context => cuCtxSynchronize().ignore(),
            Call::Exchange(mode) => cuThreadExchangeStreamCaptureMode(&mut { mode }).ignore(),
            Call::Update(at, of, set) => {
                if status(stream(of)) == ACTIVE {
                    let list = dependencies(stream(of));
                    let (first, none) = (list.as_ptr(), std::ptr::null());
                    let flags = u32::from(set);
                    cuStreamUpdateCaptureDependencies_v2(
                        stream(at),
                        first,
                        none,
                        list.len(),
                        flags,
                    )
                    .ignore();
                }
            }
            Call::Instantiate(at) => {
                if status(stream(at)) == ACTIVE {
                    cuGraphInstantiateWithFlags(&mut 0, graph_of(stream(at)), 0).ignore();
                }
            }
            Call::Renew(at) => {
                cuStreamDestroy_v2(stream(at)).must();
                self.streams[at] = World::stream(at);
            }
            Call::RenewEvent(event) => {
                cuEventDestroy_v2(self.events[event]).must();
                self.events[event] = super::event();
            }
            Call::Legacy => launch(self.empty, 1, 1, LEGACY, &mut []).ignore(),
        }
    }

    /// Streams that are in one capture agree on it.
    unsafe fn check(&self) {
        let active = self
            .streams
            .iter()
            .filter(|&&stream| status(stream) == ACTIVE);
        for &stream in active {
            let (_, graph, nodes_then, _) = info(stream);
            let all = nodes(graph);
            assert!(nodes_then.iter().all(|node| all.contains(node)));
            assert_eq!(cuGraphDestroy(graph).code, ILLEGAL_STATE);
        }
    }
}

#[test]
fn whatever_a_program_does_streams_are_of_use_afterwards() {
    alone(|| unsafe {
        let mut world = World {
            context: context(),
            empty: function(c"empty"),
            pointer: memory(64),
            counter: counter(),
            streams: std::array::from_fn(|at| World::stream(at)),
            events: std::array::from_fn(|_| event()),
        };
        let world = &std::cell::RefCell::new(&mut world);
        try_all(1000, calls(), |calls| {
            let mut world = world.borrow_mut();
            for call in calls {
                world.make(call);
                world.check();
            }
            // Every capture ends on some stream.
            for _ in 0..2 {
                for &stream in &world.streams {
                    cuStreamEndCapture(stream, &mut 0).ignore();
                }
            }
            cuThreadExchangeStreamCaptureMode(&mut { GLOBAL }).must();
            for &stream in &world.streams {
                prop_assert!(is_of_use(stream));
            }
            prop_assert!(is_of_use(LEGACY));
            prop_assert_eq!(cuCtxSynchronize().code, 0);
            Ok(())
        });
    });
}
