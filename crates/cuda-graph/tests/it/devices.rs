//! Two devices beside each other: whichever's context is current, a graph is its own device's.
//!
//! On a machine with two GPUs or more, or in software alike: there each test is a process of its
//! own, with `SOFTCUDA_DEVICES=2`. On a machine with one GPU they say that they did not run.

use std::sync::Arc;

use cuda_graph::cudarc::driver::{CudaContext, CudaModule, CudaStream};
use cuda_graph::cudarc::nvrtc::Ptx;
use cuda_graph::{
    Buffer, CopyOp, Eager, FillOp, Graph, HostOp, Kernel, KernelOp, Path, PinnedBuffer,
    RecordEventOp, Recorder, WaitEventOp, can_access_peer, enable_peer_access,
};

use crate::fixture::{PTX, on_devices, one};
use crate::resource::Seen;

/// What there is of one of the devices.
struct Side {
    context: Arc<CudaContext>,
    stream: Arc<CudaStream>,
    module: Arc<CudaModule>,
}

impl Side {
    fn kernel(&self, name: &str) -> Kernel {
        Kernel::new(&self.module.load_function(name).unwrap()).unwrap()
    }

    fn words(&self, values: &[u32]) -> Buffer<u32> {
        Buffer::from_host(&self.stream, values).unwrap()
    }

    fn store(&self, to: &Buffer<u32>, value: u32) -> KernelOp {
        // SAFETY: `store` writes one word, which the buffer has.
        unsafe { KernelOp::new(self.kernel("store"), one(), (to, value)) }.unwrap()
    }

    fn add(&self, to: &Buffer<u32>, from: &Buffer<u32>) -> KernelOp {
        // SAFETY: `add` reads and writes one word of each.
        unsafe { KernelOp::new(self.kernel("add"), one(), (to, from)) }.unwrap()
    }

    fn store_now(&self, to: &Buffer<u32>, value: u32) {
        to.copy_from_host(&self.stream, &[value]).unwrap();
        self.stream.synchronize().unwrap();
    }

    fn make_current(&self) {
        self.context.bind_to_thread().unwrap();
    }

    fn read(&self, buffer: &Buffer<u32>) -> u32 {
        buffer.to_host(&self.stream).unwrap()[0]
    }
}

fn sides() -> [Side; 2] {
    [0, 1].map(|ordinal| {
        let device = cuda_graph::device(ordinal).expect("there are two devices");
        let context = device.context().clone();
        Side {
            stream: context.new_stream().unwrap(),
            module: context.load_module(Ptx::from_src(PTX)).unwrap(),
            context,
        }
    })
}

/// Everything is built and run while the other device's context is the thread's.
#[test]
fn the_other_context_is_current() {
    on_devices(2..=2, "devices::the_other_context_is_current", |_| {
        let sides = sides();
        for (own, other) in [(&sides[0], &sides[1]), (&sides[1], &sides[0])] {
            let words = own.words(&[0]);
            let (copied, filled) = (own.words(&[0]), own.words(&[0]));
            let pinned = PinnedBuffer::from_slice(&own.context, &[0u32]).unwrap();
            other.make_current();
            let graph = Graph::new(&own.context).unwrap();
            other.make_current();
            let store = graph.add(own.store(&words, 7), ()).unwrap();
            other.make_current();
            let copy = graph
                .add(CopyOp::new(&copied, &words).unwrap(), store)
                .unwrap();
            other.make_current();
            let fill = graph
                .add(FillOp::new(&filled, 9u32).unwrap(), store)
                .unwrap();
            other.make_current();
            let host = graph.add(HostOp::new(|| {}), (copy, fill)).unwrap();
            other.make_current();
            graph
                .add(CopyOp::new(&pinned, &words).unwrap(), host)
                .unwrap();
            other.make_current();
            let mut exec = graph.instantiate().unwrap();
            other.make_current();
            exec.upload(&own.stream).unwrap();
            other.make_current();
            exec.launch(&own.stream).unwrap();
            assert_eq!([&words, &copied, &filled].map(|it| own.read(it)), [7, 7, 9]);
            other.make_current();
            exec.update(store, own.store(&words, 8)).unwrap();
            other.make_current();
            exec.update(fill, FillOp::new(&filled, 10u32).unwrap())
                .unwrap();
            other.make_current();
            exec.disable(copy).unwrap();
            exec.launch(&own.stream).unwrap();
            assert_eq!(
                [&words, &copied, &filled].map(|it| own.read(it)),
                [8, 7, 10]
            );
            assert_eq!(pinned.to_vec(), [8]);
            other.make_current();
            let clone = graph.try_clone().unwrap();
            other.make_current();
            exec.update_from(&clone).unwrap();
            exec.launch(&own.stream).unwrap();
            assert_eq!([&words, &copied, &filled].map(|it| own.read(it)), [7, 7, 9]);
            let seen = Seen::of_owner(&words.owner());
            other.make_current();
            drop((words, graph, clone));
            other.make_current();
            drop(exec);
            seen.assert_dropped("with the executable");
        }
    });
}

/// Loops, whose condition kernel is loaded for each context, run on both at once; captured and
/// eager too.
#[test]
fn loops_on_both() {
    on_devices(2..=2, "devices::loops_on_both", |_| {
        let sides = sides();
        let made = sides.each_ref().map(|side| {
            let (flag, minus, count, plus) = (
                side.words(&[5]),
                side.words(&[u32::MAX]),
                side.words(&[0]),
                side.words(&[1]),
            );
            (flag, minus, count, plus)
        });
        let step = |at: usize, to: &mut dyn Recorder| {
            let (flag, minus, count, plus) = &made[at];
            to.record(sides[at].store(flag, 5))?;
            to.record(sides[at].store(count, 0))?;
            to.while_nonzero(flag, |turn| {
                turn.record(sides[at].add(count, plus))?;
                turn.record(sides[at].add(flag, minus))?;
                Ok(())
            })
        };
        let counts = || [0, 1].map(|at| sides[at].read(&made[at].2));
        let clear = || {
            for (at, side) in sides.iter().enumerate() {
                made[at].2.copy_from_host(&side.stream, &[0]).unwrap();
            }
        };

        let mut execs = [0, 1].map(|at| {
            let graph = Graph::new(&sides[at].context).unwrap();
            sides[1 - at].make_current();
            step(at, &mut Path::new(&graph)).unwrap();
            sides[1 - at].make_current();
            graph.instantiate().unwrap()
        });
        for _ in 0..3 {
            for (at, exec) in execs.iter_mut().enumerate() {
                exec.launch(&sides[at].stream).unwrap();
            }
        }
        assert_eq!(counts(), [5, 5]);

        clear();
        for at in [0, 1] {
            sides[1 - at].make_current();
            let (graph, ()) = Graph::capture(&sides[at].stream, |c| step(at, c)).unwrap();
            sides[1 - at].make_current();
            graph
                .instantiate()
                .unwrap()
                .launch(&sides[at].stream)
                .unwrap();
        }
        assert_eq!(counts(), [5, 5]);

        clear();
        for at in [0, 1] {
            let mut eager = Eager::new(&sides[at].stream).unwrap();
            sides[1 - at].make_current();
            step(at, &mut eager).unwrap();
        }
        assert_eq!(counts(), [5, 5]);
    });
}

/// A copy from one device to the other, as a node of either's graph: refused until access is
/// enabled.
#[test]
fn copies_between_them() {
    on_devices(2..=2, "devices::copies_between_them", |_| {
        let sides = sides();
        for at in [0, 1] {
            let (own, other) = (&sides[at], &sides[1 - at]);
            let (from, to) = (other.words(&[41, 42]), own.words(&[0, 0]));
            other.stream.synchronize().unwrap();
            own.stream.synchronize().unwrap();
            let graph = Graph::new(&own.context).unwrap();
            let op = CopyOp::new(&to, &from).unwrap();
            let refused = graph.add(op.clone(), ());
            // The second time round the first has let it in.
            if at == 0 {
                let refused = refused.unwrap_err().to_string();
                assert!(refused.contains("CUDA_ERROR_INVALID_VALUE"), "{refused}");
                assert_eq!(graph.nodes().unwrap(), []);
                for (own, other) in [(own, other), (other, own), (own, other), (own, own)] {
                    assert!(can_access_peer(&own.context, &other.context).unwrap());
                    enable_peer_access(&own.context, &other.context).unwrap();
                }
                graph.add(op, ()).unwrap();
            }
            graph.instantiate().unwrap().launch(&own.stream).unwrap();
            assert_eq!(to.to_host(&own.stream).unwrap(), [41, 42]);
            let mut eager = Eager::new(&own.stream).unwrap();
            let back = CopyOp::new(from.slice(1..).unwrap(), to.slice(..1).unwrap()).unwrap();
            eager.record(back).unwrap();
            own.stream.synchronize().unwrap();
            assert_eq!(from.to_host(&other.stream).unwrap(), [41, 41]);
        }
    });
}

/// A kernel of the other device's module, and a launch into the other device's stream: the driver
/// takes both, and both devices work afterwards.
#[test]
fn what_is_the_others() {
    on_devices(2..=2, "devices::what_is_the_others", |_| {
        let sides = sides();
        let [own, other] = &sides;
        let (words, theirs) = (own.words(&[0]), other.words(&[0]));
        let graph = Graph::new(&own.context).unwrap();
        let node = graph.add(other.store(&theirs, 3), ()).unwrap();
        let mut exec = graph.instantiate().unwrap();
        let launched = exec
            .launch(&own.stream)
            .and_then(|()| Ok(own.stream.synchronize()?));
        println!(
            "a kernel of the other's: {launched:?}, {:?}",
            theirs.to_host(&other.stream)
        );
        launched.unwrap();
        graph.destroy(node).unwrap();
        graph.add(own.store(&words, 4), ()).unwrap();
        let mut exec = graph.instantiate().unwrap();
        exec.launch(&other.stream).unwrap();
        other.stream.synchronize().unwrap();
        assert_eq!(own.read(&words), 4);
        let graph = Graph::new(&other.context).unwrap();
        graph.add(other.store(&theirs, 5), ()).unwrap();
        graph.instantiate().unwrap().launch(&other.stream).unwrap();
        assert_eq!(other.read(&theirs), 5);
    });
}

/// Threads that each use both, in turns.
#[test]
fn threads_that_use_both() {
    on_devices(2..=2, "devices::threads_that_use_both", |_| {
        let sides = Arc::new(sides());
        let threads: Vec<_> = (0..4u32)
            .map(|thread| {
                let sides = sides.clone();
                std::thread::spawn(move || {
                    for round in 0..25 {
                        let side = &sides[(thread + round) as usize % 2];
                        let stream = side.context.new_stream().unwrap();
                        let words = Buffer::from_host(&stream, &[0u32]).unwrap();
                        let value = thread * 1000 + round;
                        let (graph, ()) = Graph::capture(&stream, |c| {
                            c.record(side.store(&words, value))?;
                            Ok(())
                        })
                        .unwrap();
                        let mut exec = graph.instantiate().unwrap();
                        exec.launch(&stream).unwrap();
                        assert_eq!(words.to_host(&stream).unwrap(), [value]);
                    }
                })
            })
            .collect();
        for thread in threads {
            thread.join().unwrap();
        }
    });
}

/// Kernels of one device work on buffers of the other, in graphs, loops, captures and eagerly.
#[test]
fn kernels_use_the_others_memory() {
    on_devices(2..=2, "devices::kernels_use_the_others_memory", |_| {
        let sides = sides();
        for (own, other) in [(&sides[0], &sides[1]), (&sides[1], &sides[0])] {
            enable_peer_access(&own.context, &other.context).unwrap();
            let (flag, minus) = (other.words(&[4]), other.words(&[u32::MAX]));
            let (count, one) = (own.words(&[0]), other.words(&[1]));
            other.stream.synchronize().unwrap();
            own.stream.synchronize().unwrap();
            let step = |to: &mut dyn Recorder| {
                to.record(own.store(&flag, 4))?;
                to.record(own.store(&count, 0))?;
                to.while_nonzero(&flag, |turn| {
                    turn.record(own.add(&count, &one))?;
                    turn.record(own.add(&flag, &minus))?;
                    Ok(())
                })
            };
            let (graph, ()) = Graph::record(&own.context, |path| step(path)).unwrap();
            let mut exec = graph.instantiate().unwrap();
            for _ in 0..2 {
                exec.launch(&own.stream).unwrap();
                assert_eq!(own.read(&count), 4);
            }
            let (graph, ()) = Graph::capture(&own.stream, |c| step(c)).unwrap();
            graph.instantiate().unwrap().launch(&own.stream).unwrap();
            assert_eq!(own.read(&count), 4);
            own.store_now(&count, 0);
            step(&mut Eager::new(&own.stream).unwrap()).unwrap();
            assert_eq!(own.read(&count), 4);
        }
    });
}

/// An event that one device's graph records orders the other's: each waits for what the other did
/// in the turn before.
#[test]
fn events_order_graphs_of_both() {
    on_devices(2..=2, "devices::events_order_graphs_of_both", |_| {
        let sides = sides();
        let [zero, one] = &sides;
        for (own, other) in [(zero, one), (one, zero)] {
            enable_peer_access(&own.context, &other.context).unwrap();
        }
        let (word, step) = (zero.words(&[0]), zero.words(&[1]));
        zero.stream.synchronize().unwrap();
        let event = |side: &Side| {
            side.make_current();
            Arc::new(side.context.new_event(None).unwrap())
        };
        let (ping, pong) = (event(zero), event(one));
        pong.record(&one.stream).unwrap();
        // Zero doubles the word, one adds to it; each waits for the other.
        let record = |side: &Side, wait, mark, ops: [KernelOp; 1]| {
            let (graph, ()) = Graph::record(&side.context, |path| {
                path.record(WaitEventOp::new(wait))?;
                for op in &ops {
                    path.record(op.clone())?;
                }
                path.record(RecordEventOp::new(mark))?;
                Ok(())
            })
            .unwrap();
            graph.instantiate().unwrap()
        };
        let mut double = record(zero, &pong, &ping, [zero.add(&word, &word)]);
        let mut more = record(one, &ping, &pong, [one.add(&word, &step)]);
        for _ in 0..10 {
            double.launch(&zero.stream).unwrap();
            more.launch(&one.stream).unwrap();
        }
        one.stream.synchronize().unwrap();
        assert_eq!(zero.read(&word), 1023);
    });
}
