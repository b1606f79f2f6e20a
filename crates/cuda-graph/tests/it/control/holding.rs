//! What bodies use, and flags, live as long as what runs them needs, and no longer (L4, L5): seen
//! by drops.

use std::sync::Arc;

use cuda_graph::cudarc::driver::CudaStream;
use cuda_graph::{
    Buffer, Eager, Exec, FillOp, Graph, HostOp, KernelOp, Node, Recorder, Replay, Result,
};

use super::kernels::{kernels, put};
use super::{BUILT, Through, alone, launch, recorded};
use crate::capture::scene::Held;
use crate::door::Door;
use crate::fixture::{Watch, assert_soon, stream};
use crate::resource::Seen;

/// What a step uses, and what is seen of that.
struct Used {
    /// Each is used in one place alone.
    buffers: Vec<Buffer<i32>>,
    seen: Vec<Seen>,
    held: Vec<Arc<Held>>,
    watches: Vec<Watch>,
}

impl Used {
    fn new(stream: &Arc<CudaStream>) -> Used {
        kernels();
        let buffers: Vec<_> = (0..8)
            .map(|_| Buffer::from_host(stream, &[1]).unwrap())
            .collect();
        let (watches, watched): (Vec<_>, Vec<_>) = (0..3).map(|_| Watch::new()).unzip();
        Used {
            seen: buffers
                .iter()
                .map(|buffer| Seen::of_owner(&buffer.owner()))
                .collect(),
            buffers,
            held: watched
                .into_iter()
                .map(|watched| Arc::new(Held(watched)))
                .collect(),
            watches,
        }
    }

    /// Records it, and lets go of all.
    fn record(&mut self, r: &mut dyn Recorder) -> Result<Option<Node<KernelOp>>> {
        let buffers = std::mem::take(&mut self.buffers);
        let held = std::mem::take(&mut self.held);
        let mut node = None;
        r.keep(held[0].clone())?;
        r.if_else_nonzero(
            &buffers[0],
            |r| {
                r.keep(held[1].clone())?;
                node = r.record(put(&buffers[1], 1))?;
                r.while_nonzero(&buffers[2], |r| {
                    r.record(put(&buffers[2], 0))?;
                    r.switch_on(
                        &buffers[3],
                        &mut [&mut |_| Ok(()), &mut |r| {
                            r.keep(held[2].clone())?;
                            r.record(FillOp::new(&buffers[4], 3)?)?;
                            r.do_while_nonzero(&buffers[5], |r| {
                                r.record(put(&buffers[5], 0)).map(drop)
                            })
                        }],
                    )
                })
            },
            // What does not run is held too.
            |r| r.if_nonzero(&buffers[6], |r| r.record(put(&buffers[7], 1)).map(drop)),
        )?;
        Ok(node)
    }

    #[track_caller]
    fn is_alive(&self, when: &str) {
        for seen in &self.seen {
            seen.assert_alive(when);
        }
        assert!(!self.watches.iter().any(Watch::is_dropped), "{when}");
    }

    #[track_caller]
    fn is_dropped(&self, when: &str) {
        for seen in &self.seen {
            seen.assert_dropped(when);
        }
        for watch in &self.watches {
            assert_soon(|| watch.is_dropped(), &format!("leaked {when}"));
        }
    }
}

/// A graph that runs `first` and then all of it; the node of a kernel inside.
fn build(
    through: Through,
    stream: &Arc<CudaStream>,
    used: &mut Used,
    first: HostOp,
) -> (Graph, Node<KernelOp>) {
    let record = |r: &mut dyn Recorder| {
        r.record(first.clone())?;
        used.record(r)
    };
    let (graph, node) = recorded(through, stream, record).unwrap();
    (graph, node.expect("it was recorded"))
}

fn each(check: impl Fn(Graph, Node<KernelOp>, &Used, &Door, &Arc<CudaStream>, &str)) {
    let _alone = alone();
    let stream = stream();
    for through in BUILT {
        let door = Arc::new(Door::default());
        let mut used = Used::new(&stream);
        let (graph, node) = build(through, &stream, &mut used, door.op());
        used.is_alive("the graph is there");
        check(graph, node, &used, &door, &stream, &format!("{through:?}"));
        used.is_dropped(&format!("all of it is gone, {through:?}"));
    }
}

#[test]
fn a_graph_holds_what_its_bodies_use() {
    each(|graph, _, used, _, _, what| {
        used.is_alive(what);
        drop(graph);
        used.is_dropped(what);
    });
}

#[test]
fn a_view_of_a_body_keeps_the_graph() {
    each(|graph, _, used, _, stream, what| {
        let mut nodes = graph.nodes().unwrap().into_iter();
        let node = nodes.find_map(|node| node.typed::<cuda_graph::IfElseOp>());
        let body = graph.body(node.unwrap()).unwrap();
        drop(graph);
        used.is_alive(what);
        assert!(body.nodes().unwrap().len() > 1, "{what}");
        stream.synchronize().unwrap();
    });
}

#[test]
fn an_executable_holds_what_its_bodies_use() {
    each(|graph, _, used, _, stream, what| {
        let mut exec = graph.instantiate().unwrap();
        drop(graph);
        for _ in 0..2 {
            launch(&mut exec, stream).unwrap();
            used.is_alive(what);
        }
    });
}

#[test]
fn a_launch_in_flight_holds_what_its_bodies_use() {
    each(|graph, _, used, door, stream, what| {
        let mut exec = graph.instantiate().unwrap();
        door.close();
        exec.launch(stream).unwrap();
        door.until_someone_waits();
        drop(graph);
        // A GPU driver has this wait for the launch, as the executable has conditional nodes.
        let dropping = std::thread::spawn(|| drop(exec));
        std::thread::sleep(std::time::Duration::from_millis(20));
        used.is_alive(what);
        door.open();
        dropping.join().unwrap();
        stream.synchronize().unwrap();
    });
}

#[test]
fn destroying_a_node_lets_go_of_its_bodies() {
    each(|graph, _, used, _, stream, what| {
        let mut exec = graph.instantiate().unwrap();
        let mut nodes = graph.nodes().unwrap().into_iter();
        let node = nodes.find(|node| node.kind() == cuda_graph::NodeKind::Conditional);
        graph.destroy(node.unwrap()).unwrap();
        // The executable is as it was.
        used.is_alive(what);
        launch(&mut exec, stream).unwrap();
        drop(exec);
        // The kernel before the node reads the first flag, and what was kept by the graph itself
        // stays.
        used.seen[1].assert_dropped(what);
        used.seen[4].assert_dropped(what);
        assert_soon(|| used.watches[2].is_dropped(), what);
        used.seen[0].assert_alive(what);
        assert!(!used.watches[0].is_dropped(), "{what}");
    });
}

#[test]
fn what_updates_of_nodes_in_bodies_give_is_held() {
    each(|graph, node, used, door, stream, what| {
        let mut exec = graph.instantiate().unwrap();
        let buffer = Buffer::from_host(stream, &[0]).unwrap();
        let seen = Seen::of_owner(&buffer.owner());
        exec.update(node, put(&buffer, 2)).unwrap();
        drop(buffer);
        launch(&mut exec, stream).unwrap();
        seen.assert_alive(what);
        let run = |exec: &mut Exec| {
            door.close();
            exec.launch(stream).unwrap();
            door.until_someone_waits();
        };
        run(&mut exec);
        // The whole update gives back what the definition says.
        exec.update_from(&graph).unwrap();
        seen.assert_alive(what);
        door.open();
        stream.synchronize().unwrap();
        seen.assert_dropped(what);
        used.is_alive(what);
    });
}

#[test]
fn eagerly_it_is_held_until_it_has_run() {
    let _alone = alone();
    let stream = stream();
    let buffer = |values: &[i32]| {
        let buffer = Buffer::from_host(&stream, values).unwrap();
        let seen = Seen::of_owner(&buffer.owner());
        (buffer, seen)
    };
    let door = Arc::new(Door::default());
    let (watch, watched) = Watch::new();
    let ((used, seen), (flag, seen_flag)) = (buffer(&[0]), buffer(&[2]));
    let (inside, seen_inside) = buffer(&[0]);
    let mut eager = Eager::new(&stream).unwrap();
    eager.record(put(&used, 1)).unwrap();
    Recorder::keep(&mut eager, Arc::new(Held(watched))).unwrap();
    drop(used);
    seen.assert_alive("it may not have run");
    // A flag is read once everything before has run.
    eager.if_nonzero(&flag, |_| Ok(())).unwrap();
    seen.assert_dropped("a flag was read since");
    // Of what other code uses nothing is known.
    assert!(!watch.is_dropped(), "it is kept as long as the recorder");

    // From turn to turn.
    let mut turns = 0;
    eager
        .while_nonzero(&flag, |r| {
            turns += 1;
            let (turn, seen_turn) = buffer(&[turns]);
            r.record(put(&turn, 7))?;
            drop(turn);
            r.record(super::kernels::nearer(&flag))?;
            r.if_nonzero(&flag, |_| Ok(()))?;
            seen_turn.assert_dropped("a flag was read since");
            Ok(())
        })
        .unwrap();
    assert_eq!(turns, 2);

    // What still runs when the recorder is gone.
    door.close();
    eager.record(door.op()).unwrap();
    door.until_someone_waits();
    eager.record(put(&inside, 1)).unwrap();
    drop((eager, inside, flag));
    seen_inside.assert_alive("the stream has not come to it");
    door.open();
    stream.synchronize().unwrap();
    seen_inside.assert_dropped("it has run");
    seen_flag.assert_dropped("nothing uses it");
    assert_soon(|| watch.is_dropped(), "the recorder is gone");
}

/// An error or a panic in a body takes nothing from what the stream has yet to do.
#[test]
fn eagerly_what_was_left_still_runs() {
    let _alone = alone();
    let stream = stream();
    for panics in [false, true] {
        let door = Arc::new(Door::default());
        let flag = Buffer::from_host(&stream, &[1]).unwrap();
        let used = Buffer::from_host(&stream, &[0]).unwrap();
        let seen = Seen::of_owner(&used.owner());
        let exit = crate::exit::Exit::new(
            0,
            match panics {
                true => crate::exit::How::Panic,
                false => crate::exit::How::Error,
            },
        );
        let mut used = Some(used);
        let left = exit.takes("eagerly", || {
            let mut eager = Eager::new(&stream)?;
            eager.do_while_nonzero(&flag, |r| {
                door.close();
                r.record(door.op())?;
                door.until_someone_waits();
                r.record(put(&used.take().expect("it runs once"), 1))?;
                exit.here()
            })
        });
        assert!(left);
        seen.assert_alive("the stream has not come to it");
        door.open();
        stream.synchronize().unwrap();
        seen.assert_dropped("it has run");
    }
}

/// Ranks of one device wait for each other there: letting a recorder go must not wait for what
/// other streams do.
#[test]
fn nothing_that_goes_waits_for_other_streams() {
    let _alone = alone();
    let stream = stream();
    let other = stream.context().new_stream().unwrap();
    let flag = Buffer::from_host(&stream, &[0]).unwrap();
    let door = Arc::new(Door::default());
    let mut before = Eager::new(&other).unwrap();
    door.close();
    before.record(door.op()).unwrap();
    door.until_someone_waits();
    let (done, is_done) = std::sync::mpsc::channel();
    let going = std::thread::spawn(move || {
        // The host decides, as it has to call the body's operation.
        let step =
            |r: &mut dyn Recorder| r.if_nonzero(&flag, |r| r.record(HostOp::new(|| ())).map(drop));
        let mut eager = Eager::new(&stream).unwrap();
        step(&mut eager).unwrap();
        drop(eager);
        let mut replay = Replay::new(stream.context()).unwrap();
        replay.call(&stream, |r| step(r)).unwrap();
        drop(replay);
        done.send(()).unwrap();
    });
    let gone = is_done.recv_timeout(std::time::Duration::from_secs(10));
    door.open();
    going.join().unwrap();
    gone.expect("it waited for the other stream");
}
