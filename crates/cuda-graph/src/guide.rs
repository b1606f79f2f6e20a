//! A guide: from a stream program to a loop that the device runs by itself.
//!
//! It begins with a program that uses nothing but [`cudarc`], and changes it by one idea a chapter.
//! Each snippet is compiled and run as a test, on a GPU or on the software driver. Parts of a
//! program that an earlier chapter has shown are left out.
//!
//! 1. [A stream program](#1-a-stream-program)
//! 2. [A graph](#2-a-graph)
//! 3. [What a graph keeps, and updates](#3-what-a-graph-keeps-and-updates)
//! 4. [One step for all recorders](#4-one-step-for-all-recorders)
//! 5. [The loop on the device](#5-the-loop-on-the-device)
//! 6. [Branches and parallel parts](#6-branches-and-parallel-parts)
//! 7. [Code that only knows streams](#7-code-that-only-knows-streams)
//! 8. [A step that is called again and again](#8-a-step-that-is-called-again-and-again)
//! 9. [Parameters](#9-parameters)
//! 10. [What the host must do in between](#10-what-the-host-must-do-in-between)
//! 11. [Checkpoints](#11-checkpoints)
//! 12. [Where it runs](#12-where-it-runs)
//! 13. [Several devices](#13-several-devices)
//! 14. [When something goes wrong](#14-when-something-goes-wrong)
//! 15. [The whole program](#15-the-whole-program)
//!
//! # 1. A stream program
//!
//! The program finds the square roots of many numbers by Newton's method. It takes turns: the
//! kernel `improve` changes each root, and notes in `moved` whether one of them still changes much.
//! The kernel `decide` counts the turn and writes the flag `go`. The host reads the flag, and
//! loops.
//!
//! ```
//! use cuda_graph::cudarc::driver::{LaunchConfig, PushKernelArg};
//! use cuda_graph::cudarc::nvrtc::Ptx;
//!
//! const PTX: &str = r#"
#![doc = include_str!("guide/roots.ptx")]
//! "#;
//!
//! fn main() -> Result<(), Box<dyn std::error::Error>> {
//!     // `CudaContext::new(0)`, and the software driver where there is no GPU.
//!     let context = cuda_graph::device(0)?.context().clone();
//!     let stream = context.new_stream()?;
//!     let module = context.load_module(Ptx::from_src(PTX))?;
//!     let improve = module.load_function("improve")?;
//!     let decide = module.load_function("decide")?;
//!
//!     let numbers: Vec<f32> = (1..=1000).map(|i| i as f32).collect();
//!     let (n, limit) = (numbers.len() as u32, 100u32);
//!     let a = stream.clone_htod(&numbers)?;
//!     let mut x = stream.clone_htod(&vec![1f32; numbers.len()])?;
//!     let mut moved = stream.alloc_zeros::<u32>(1)?;
//!     let mut go = stream.alloc_zeros::<u32>(1)?;
//!     let mut turns = stream.alloc_zeros::<u32>(1)?;
//!     let one = LaunchConfig { grid_dim: (1, 1, 1), block_dim: (1, 1, 1), shared_mem_bytes: 0 };
//!     loop {
//!         let mut call = stream.launch_builder(&improve);
//!         call.arg(&mut x).arg(&a).arg(&mut moved).arg(&n);
//!         // SAFETY: these are the parameters of `improve`, and both vectors have `n` values.
//!         unsafe { call.launch(LaunchConfig::for_num_elems(n)) }?;
//!
//!         let mut call = stream.launch_builder(&decide);
//!         call.arg(&mut moved).arg(&mut go).arg(&mut turns).arg(&limit);
//!         // SAFETY: these are the parameters of `decide`, and it is one thread.
//!         unsafe { call.launch(one) }?;
//!
//!         if stream.clone_dtoh(&go)? == [0] {
//!             break;
//!         }
//!     }
//!     for (x, a) in stream.clone_dtoh(&x)?.iter().zip(numbers) {
//!         assert!((x * x - a).abs() <= 1e-5 * a);
//!     }
//!     Ok(())
//! }
//! ```
//!
//! Each turn costs two launches, and a wait of the host for a flag of four bytes. For short kernels
//! the launches and the wait take longer than the work.
//!
//! # 2. A graph
//!
//! A kernel launch becomes a value: a [`KernelOp`]. [`Kernel`] asks the driver for the kernel's
//! parameters, so a wrong number of arguments and arguments of wrong sizes are errors. A [`Buffer`]
//! is device memory that several owners share. All later chapters use this part of the program:
//!
//! ```
//! # const PTX: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/guide/roots.ptx"));
#![doc = include_str!("guide/roots.rs")]
//! # fn main() -> Result<()> {
//! #     let device = cuda_graph::device(0)?;
//! #     let stream = device.context().new_stream()?;
//! #     let kernels = Kernels::load(device.context())?;
//! #     let numbers: Vec<f32> = (1..=1000).map(|i| i as f32).collect();
//! #     let roots = Roots::new(&stream, &numbers)?;
//! #     kernels.improve(&roots)?;
//! #     kernels.decide(&roots, 1)?;
//! #     assert_eq!(roots.turns.to_host(&stream)?, [0]);
//! #     Ok(())
//! # }
//! ```
//!
//! `main` adds both operations to a [`Graph`]. The second argument of [`Graph::add`] says which
//! nodes the new node waits for. The graph is instantiated once, and launched for each turn:
//!
//! ```
//! # const PTX: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/guide/roots.ptx"));
//! # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/guide/roots.rs"));
//! use cuda_graph::Graph;
//!
//! fn main() -> Result<()> {
//!     let device = cuda_graph::device(0)?;
//!     let stream = device.context().new_stream()?;
//!     let kernels = Kernels::load(device.context())?;
//!     let numbers: Vec<f32> = (1..=1000).map(|i| i as f32).collect();
//!     let roots = Roots::new(&stream, &numbers)?;
//!
//!     let graph = Graph::new(device.context())?;
//!     let improve = graph.add(kernels.improve(&roots)?, ())?;
//!     graph.add(kernels.decide(&roots, 100)?, improve)?;
//!     let mut turn = graph.instantiate()?;
//!     loop {
//!         turn.launch(&stream)?;
//!         if roots.go.to_host(&stream)? == [0] {
//!             break;
//!         }
//!     }
//!     roots.check(&stream)
//! }
//! ```
//!
//! A turn is one launch now, however many kernels it has. To build the graph costs more than to
//! launch its kernels by hand, so it pays off when the graph is launched often. The host still
//! waits in each turn. In later chapters `device`, `stream`, `kernels` and `numbers` are those of
//! this program.
//!
//! # 3. What a graph keeps, and updates
//!
//! A node holds what its operation uses: the module and the buffers. So does the executable
//! ([`Exec`]), and so does a launch in flight. The program may drop everything else. A node can get
//! another operation of its kind, without building anything again:
//!
//! ```
//! # const PTX: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/guide/roots.ptx"));
//! # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/guide/roots.rs"));
//! use cuda_graph::Graph;
//!
//! fn main() -> Result<()> {
//! #     let device = cuda_graph::device(0)?;
//! #     let stream = device.context().new_stream()?;
//! #     let kernels = Kernels::load(device.context())?;
//! #     let numbers: Vec<f32> = (1..=1000).map(|i| i as f32).collect();
//!     let roots = Roots::new(&stream, &numbers)?;
//!     let graph = Graph::new(device.context())?;
//!     let improve = graph.add(kernels.improve(&roots)?.label("Newton"), ())?;
//!     let decide = graph.add(kernels.decide(&roots, 1)?, improve)?;
//!     let mut turn = graph.instantiate()?;
//!
//!     // The executable holds the memory, until the updates below replace the last use of it.
//!     let turns = roots.turns.clone();
//!     drop((graph, roots));
//!     turn.launch(&stream)?;
//!     assert_eq!(turns.to_host(&stream)?, [1]);
//!
//!     // Other buffers, and another size.
//!     let others = Roots::new(&stream, &[2.0, 9.0])?;
//!     turn.update(improve, kernels.improve(&others)?)?;
//!     turn.update(decide, kernels.decide(&others, 100)?)?;
//!     drop(kernels);
//!     loop {
//!         turn.launch(&stream)?;
//!         if others.go.to_host(&stream)? == [0] {
//!             break;
//!         }
//!     }
//!     others.check(&stream)
//! }
//! ```
//!
//! An update costs a fraction of a microsecond for each node, and applies from the next launch on.
//! [`Exec::update`] changes one node, [`Exec::update_from`] all of them from another graph of the
//! same shape, and [`Exec::disable`] has launches skip a node.
//!
//! # 4. One step for all recorders
//!
//! A step is a function of `&mut dyn` [`Recorder`]. It says what is to be done, in order. The
//! recorder decides what comes of it: [`Eager`] runs each operation at once, and [`Graph::record`]
//! adds it to a graph. These two steps are in all later chapters:
//!
//! ```
//! # const PTX: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/guide/roots.ptx"));
//! # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/guide/roots.rs"));
#![doc = include_str!("guide/step.rs")]
//!
//! fn main() -> Result<()> {
//!     use cuda_graph::{Eager, Graph};
//!
//! #     let device = cuda_graph::device(0)?;
//! #     let stream = device.context().new_stream()?;
//! #     let kernels = Kernels::load(device.context())?;
//! #     let numbers: Vec<f32> = (1..=1000).map(|i| i as f32).collect();
//!     let roots = Roots::new(&stream, &numbers)?;
//!
//!     // To debug: the host may look after each operation.
//!     let mut eager = Eager::new(&stream)?;
//!     start(&mut eager, &roots)?;
//!     assert_eq!(roots.x.to_host(&stream)?[3], 1.0);
//!     turn(&mut eager, &kernels, &roots, 100)?;
//!     assert_eq!(roots.x.to_host(&stream)?[3], 2.5); // the mean of 1 and 4 / 1
//!
//!     // To run: the same functions, recorded.
//!     let (first, ()) = Graph::record(device.context(), |path| start(path, &roots))?;
//!     let (again, ()) = Graph::record(device.context(), |path| {
//!         turn(path, &kernels, &roots, 100)
//!     })?;
//!     first.instantiate()?.launch(&stream)?;
//!     let mut again = again.instantiate()?;
//!     loop {
//!         again.launch(&stream)?;
//!         if roots.go.to_host(&stream)? == [0] {
//!             break;
//!         }
//!     }
//!     roots.check(&stream)
//! }
//! ```
//!
//! The step is written once, and a debugger or a print between two operations works in it. A
//! recorder gives the order of a stream: each operation waits for the one before, until chapter 6.
//! A step that is recorded has not run yet, so it must not read results: chapter 10 says how a step
//! can.
//!
//! # 5. The loop on the device
//!
//! The flag lies on the device, so the device can decide. A loop is a part of the step:
//!
//! ```
//! # const PTX: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/guide/roots.ptx"));
//! # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/guide/roots.rs"));
//! # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/guide/step.rs"));
//! use cuda_graph::{Eager, Graph};
//!
//! /// All turns, and the loop around them.
//! fn solve(r: &mut dyn Recorder, kernels: &Kernels, roots: &Roots, limit: u32) -> Result<()> {
//!     start(r, roots)?;
//!     r.do_while_nonzero(&roots.go, |r| turn(r, kernels, roots, limit))
//! }
//!
//! fn main() -> Result<()> {
//! #     let device = cuda_graph::device(0)?;
//! #     let stream = device.context().new_stream()?;
//! #     let kernels = Kernels::load(device.context())?;
//! #     let numbers: Vec<f32> = (1..=1000).map(|i| i as f32).collect();
//!     let roots = Roots::new(&stream, &numbers)?;
//!     let (graph, ()) = Graph::record(device.context(), |path| {
//!         solve(path, &kernels, &roots, 100)
//!     })?;
//!     let mut exec = graph.instantiate()?;
//!     exec.launch(&stream)?; // returns at once
//!     roots.check(&stream)?;
//!     let turns = roots.turns.to_host(&stream)?;
//!
//!     // The same step, its loop driven by the host.
//!     solve(&mut Eager::new(&stream)?, &kernels, &roots, 100)?;
//!     roots.check(&stream)?;
//!     assert_eq!(roots.turns.to_host(&stream)?, turns);
//!     Ok(())
//! }
//! ```
//!
//! All turns are one launch, and the host is free until it wants the result. `do_while_nonzero`
//! looks at the flag after each turn, and `while_nonzero` before each turn. The closure of the body
//! is called once, to record it; an `Eager` calls it for each turn. A turn on the device costs a
//! small kernel that reads the flag. Record two or more turns in the body to test less often. A
//! body can hold kernels, fills, copies, other graphs and loops, but no calls of the host.
//!
//! # 6. Branches and parallel parts
//!
//! A second solve of nearly the same numbers can start from the roots of the first. The flag
//! `fresh` says whether to begin anew. Its branch and the reset of the count do not wait for each
//! other:
//!
//! ```
//! # const PTX: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/guide/roots.ptx"));
//! # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/guide/roots.rs"));
//! # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/guide/step.rs"));
//! use cuda_graph::Graph;
//!
//! fn solve(
//!     r: &mut dyn Recorder,
//!     kernels: &Kernels,
//!     roots: &Roots,
//!     fresh: &Buffer<u32>,
//! ) -> Result<()> {
//!     r.parallel(&mut [
//!         &mut |r| r.if_nonzero(fresh, |r| r.record(FillOp::new(&roots.x, 1.0)?).map(drop)),
//!         &mut |r| r.record(FillOp::new(&roots.turns, 0)?).map(drop),
//!     ])?;
//!     r.do_while_nonzero(&roots.go, |r| turn(r, kernels, roots, 100))
//! }
//!
//! fn main() -> Result<()> {
//! #     let device = cuda_graph::device(0)?;
//! #     let stream = device.context().new_stream()?;
//! #     let kernels = Kernels::load(device.context())?;
//! #     let numbers: Vec<f32> = (1..=1000).map(|i| i as f32).collect();
//!     let roots = Roots::new(&stream, &numbers)?;
//!     let fresh = Buffer::from_host(&stream, &[1u32])?;
//!     let (graph, ()) = Graph::record(device.context(), |path| {
//!         solve(path, &kernels, &roots, &fresh)
//!     })?;
//!     let mut exec = graph.instantiate()?;
//!     exec.launch(&stream)?;
//!     roots.check(&stream)?;
//!     assert!(roots.turns.to_host(&stream)?[0] > 5);
//!
//!     fresh.copy_from_host(&stream, &[0])?;
//!     exec.launch(&stream)?; // it has the roots already
//!     roots.check(&stream)?;
//!     assert_eq!(roots.turns.to_host(&stream)?, [1]);
//!     Ok(())
//! }
//! ```
//!
//! One graph serves both cases, and no host decides between them. Work in parallel parts must not
//! touch the same memory, because nothing orders it. Loops in several parallel parts take turns.
//! `if_else_nonzero` has a second body, and `switch_on` has one for each number.
//!
//! # 7. Code that only knows streams
//!
//! The `improve` below stands for a library that launches into a stream, such as cuBLAS. A *foreign
//! block* records what it launches. The recording needs a stream for that: [`Graph::capture`] takes
//! one.
//!
//! ```
//! # const PTX: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/guide/roots.ptx"));
//! # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/guide/roots.rs"));
//! # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/guide/step.rs"));
//! use cuda_graph::Graph;
//! use cuda_graph::cudarc::driver::{CudaFunction, CudaSlice, DriverError, PushKernelArg};
//!
//! /// A launch of another crate, which knows nothing of graphs.
//! fn improve(
//!     stream: &Arc<CudaStream>,
//!     improve: &CudaFunction,
//!     (x, a, moved): (&CudaSlice<f32>, &CudaSlice<f32>, &CudaSlice<u32>),
//! ) -> std::result::Result<(), DriverError> {
//!     let n = x.len() as u32;
//!     let mut call = stream.launch_builder(improve);
//!     call.arg(x).arg(a).arg(moved).arg(&n);
//!     // SAFETY: these are the parameters of `improve`, and both vectors have `n` values.
//!     unsafe { call.launch(LaunchConfig::for_num_elems(n)) }.map(drop)
//! }
//!
//! fn main() -> Result<()> {
//! #     let device = cuda_graph::device(0)?;
//! #     let stream = device.context().new_stream()?;
//! #     let kernels = Kernels::load(device.context())?;
//! #     let numbers: Vec<f32> = (1..=1000).map(|i| i as f32).collect();
//!     // SAFETY: all work of this program is in one stream.
//!     unsafe { device.context().disable_event_tracking() };
//!     let module = device.context().load_module(Ptx::from_src(PTX))?;
//!     let function = module.load_function("improve")?;
//!     let x = Arc::new(stream.clone_htod(&vec![1f32; numbers.len()])?);
//!     let a = Arc::new(stream.clone_htod(&numbers)?);
//!     let moved = Arc::new(stream.alloc_zeros::<u32>(1)?);
//!     let roots = Roots {
//!         x: Buffer::from(&x), // both types share the memory
//!         a: Buffer::from(&a),
//!         moved: Buffer::from(&moved),
//!         ..Roots::new(&stream, &numbers)?
//!     };
//!     let (graph, ()) = Graph::capture(&stream, |path| {
//!         start(path, &roots)?;
//!         path.do_while_nonzero(&roots.go, |r| {
//!             r.keep(Arc::new((function.clone(), x.clone(), a.clone(), moved.clone())))?;
//!             // SAFETY: what the launch uses is kept.
//!             unsafe { r.foreign(|stream| Ok(improve(stream, &function, (&x, &a, &moved))?)) }?;
//!             r.record(kernels.decide(&roots, 100)?)?;
//!             Ok(())
//!         })
//!     })?;
//!     graph.instantiate()?.launch(&stream)?;
//!     roots.check(&stream)
//! }
//! ```
//!
//! Any crate's launches can be a part of a step, also in loops. The block is `unsafe`, because the
//! library does not see what they use. The caller vouches that it lives whenever the graph runs;
//! [`Recorder::keep`] is the simplest way. Nodes of a foreign block cannot be updated one by one.
//! cudarc's own tracking by events does not work in captures, so the program switches it off.
//!
//! # 8. A step that is called again and again
//!
//! A program rarely solves for the same memory twice. A [`Replay`] takes the step itself, with
//! whatever buffers and sizes it has this time. The first call builds a graph. Later calls compare
//! the step with it, and update the nodes that differ:
//!
//! ```
//! # const PTX: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/guide/roots.ptx"));
//! # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/guide/roots.rs"));
//! # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/guide/step.rs"));
//! # /// All turns, and the loop around them.
//! # fn solve(r: &mut dyn Recorder, kernels: &Kernels, roots: &Roots, limit: u32) -> Result<()> {
//! #     start(r, roots)?;
//! #     r.do_while_nonzero(&roots.go, |r| turn(r, kernels, roots, limit))
//! # }
//! use cuda_graph::Replay;
//!
//! fn main() -> Result<()> {
//! #     let device = cuda_graph::device(0)?;
//! #     let stream = device.context().new_stream()?;
//! #     let kernels = Kernels::load(device.context())?;
//! #     let numbers: Vec<f32> = (1..=1000).map(|i| i as f32).collect();
//!     let mut replay = Replay::new(device.context())?;
//!     for count in [10, 1000, 300, 77] {
//!         let roots = Roots::new(&stream, &numbers[..count])?;
//!         replay.call(&stream, |r| solve(r, &kernels, &roots, 100))?;
//!         roots.check(&stream)?;
//!     }
//!     let counters = replay.counters();
//!     assert_eq!((counters.calls, counters.launches), (4, 4));
//!     assert_eq!(counters.builds, 1); // by the first call
//!
//!     // The same call twice: the second one changes no node.
//!     let roots = Roots::new(&stream, &numbers)?;
//!     replay.call(&stream, |r| solve(r, &kernels, &roots, 100))?;
//!     let updated = replay.counters().updated;
//!     replay.call(&stream, |r| solve(r, &kernels, &roots, 100))?;
//!     assert_eq!(replay.counters().updated, updated);
//!     roots.check(&stream)
//! }
//! ```
//!
//! The program is as simple as one that runs eagerly, and costs a launch and an update of what
//! changed. The step itself still runs on the host in each call, but loops and branches are walked
//! once and not once a turn. If a step records something else, the replay builds and keeps another
//! executable. [`Counters`] tell how often that happened: assert in a test that `builds` stays what
//! it is.
//!
//! # 9. Parameters
//!
//! A value that is declared to change needs no call of the step. A reference to a [`Param`] is an
//! argument of a kernel. `record_with` makes any other operation of it:
//!
//! ```
//! # const PTX: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/guide/roots.ptx"));
//! # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/guide/roots.rs"));
//! # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/guide/step.rs"));
//! use cuda_graph::{Param, Replay};
//!
//! /// What changes from one solve to the next.
//! struct Given {
//!     guess: Param<f32>,
//!     limit: Param<u32>,
//! }
//!
//! fn solve(r: &mut dyn Recorder, kernels: &Kernels, roots: &Roots, given: &Given) -> Result<()> {
//!     let (x, guess) = (roots.x.clone(), given.guess.clone());
//!     r.record_with(move || FillOp::new(&x, guess.get()?))?;
//!     r.record(FillOp::new(&roots.turns, 0)?)?;
//!     r.do_while_nonzero(&roots.go, |r| {
//!         r.record(kernels.improve(roots)?)?;
//!         let arguments = (&roots.moved, &roots.go, &roots.turns, &given.limit);
//!         // SAFETY: these are the parameters of `decide`, and it is one thread.
//!         r.record(unsafe { KernelOp::new(&kernels.decide, ONE, arguments) }?)?;
//!         Ok(())
//!     })
//! }
//!
//! fn main() -> Result<()> {
//! #     let device = cuda_graph::device(0)?;
//! #     let stream = device.context().new_stream()?;
//! #     let kernels = Kernels::load(device.context())?;
//! #     let numbers: Vec<f32> = (1..=1000).map(|i| i as f32).collect();
//!     let roots = Roots::new(&stream, &numbers)?;
//!     let given = Given {
//!         guess: Param::with_value("guess", 1.0),
//!         limit: Param::with_value("limit", 100),
//!     };
//!     let mut replay = Replay::new(device.context())?;
//!     replay.call(&stream, |r| solve(r, &kernels, &roots, &given))?;
//!     roots.check(&stream)?;
//!     let turns = roots.turns.to_host(&stream)?;
//!
//!     replay.bind(&given.guess, 5.0)?;
//!     replay.run(&stream)?; // does not call `solve`
//!     roots.check(&stream)?;
//!     assert!(roots.turns.to_host(&stream)? < turns);
//!
//!     replay.bind(&given.limit, 2)?;
//!     replay.run(&stream)?;
//!     assert_eq!(roots.turns.to_host(&stream)?, [2]);
//!     assert_eq!(replay.counters().builds, 1);
//!     Ok(())
//! }
//! ```
//!
//! [`Replay::bind`] gives a value, and checks it at once. [`Replay::run`] sets the nodes that use
//! it, and launches. The cost no longer depends on the size of the step. In return the step must
//! name what changes: a plain value that it captured stays as it was in the last call. A step that
//! runs eagerly or has sections for the host cannot be run so, and is called again
//! ([`Error::NotCalled`]).
//!
//! # 10. What the host must do in between
//!
//! Some work is in no graph: a library that allocates, a decision by the host, a file. `outside`
//! runs it between two parts of a step:
//!
//! ```
//! # const PTX: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/guide/roots.ptx"));
//! # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/guide/roots.rs"));
//! # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/guide/step.rs"));
//! # /// All turns, and the loop around them.
//! # fn solve(r: &mut dyn Recorder, kernels: &Kernels, roots: &Roots, limit: u32) -> Result<()> {
//! #     start(r, roots)?;
//! #     r.do_while_nonzero(&roots.go, |r| turn(r, kernels, roots, limit))
//! # }
//! use cuda_graph::Replay;
//!
//! fn main() -> Result<()> {
//! #     let device = cuda_graph::device(0)?;
//! #     let stream = device.context().new_stream()?;
//! #     let kernels = Kernels::load(device.context())?;
//! #     let numbers: Vec<f32> = (1..=1000).map(|i| i as f32).collect();
//!     let roots = Roots::new(&stream, &numbers)?;
//!     let mut replay = Replay::new(device.context())?;
//!     let mut log = Vec::new();
//!     for limit in [3, 5, 100] {
//!         replay.call(&stream, |r| {
//!             solve(r, &kernels, &roots, limit)?;
//!             r.outside(|stream| {
//!                 log.push(roots.turns.to_host(stream)?[0]);
//!                 Ok(())
//!             })?;
//!             turn(r, &kernels, &roots, limit)
//!         })?;
//!     }
//!     assert_eq!(log[..2], [3, 5]);
//!     let counters = replay.counters();
//!     assert_eq!((counters.calls, counters.launches, counters.builds), (3, 6, 2));
//!     roots.check(&stream)
//! }
//! ```
//!
//! The step stays one function. The replay makes an executable of the part before the section, and
//! one of the part behind it, and launches both. If the section is in a loop, the host drives that
//! loop, as an [`Eager`] does. [`Counters::host_driven`] tells how often. [`Graph::record`] builds
//! one graph, so it answers [`Error::OutsideGraph`].
//!
//! # 11. Checkpoints
//!
//! A loop on the device may run for long. A checkpoint is a point where it stops if a flag says so.
//! The flag is an input like any other: here the host sets it before the launch, and a kernel
//! could.
//!
//! ```
//! # const PTX: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/guide/roots.ptx"));
//! # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/guide/roots.rs"));
//! # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/guide/step.rs"));
//! use cuda_graph::Replay;
//!
//! fn solve(
//!     r: &mut dyn Recorder,
//!     kernels: &Kernels,
//!     roots: &Roots,
//!     pause: &Buffer<u32>,
//! ) -> Result<()> {
//!     start(r, roots)?;
//!     r.do_while_nonzero(&roots.go, |r| {
//!         turn(r, kernels, roots, 100)?;
//!         r.checkpoint("turn", pause)
//!     })
//! }
//!
//! fn main() -> Result<()> {
//! #     let device = cuda_graph::device(0)?;
//! #     let stream = device.context().new_stream()?;
//! #     let kernels = Kernels::load(device.context())?;
//! #     let numbers: Vec<f32> = (1..=1000).map(|i| i as f32).collect();
//!     let roots = Roots::new(&stream, &numbers)?;
//!     let pause = Buffer::from_host(&stream, &[1u32])?;
//!     let mut replay = Replay::new(device.context())?;
//!     let outcome = replay.call(&stream, |r| solve(r, &kernels, &roots, &pause))?;
//!     assert_eq!(outcome.stopped()?.as_deref(), Some("turn"));
//!     assert_eq!(roots.turns.to_host(&stream)?, [1]);
//!
//!     // One more turn.
//!     let outcome = replay.resume(&stream, |r| solve(r, &kernels, &roots, &pause))?;
//!     assert_eq!(outcome.stopped()?.as_deref(), Some("turn"));
//!     assert_eq!(roots.turns.to_host(&stream)?, [2]);
//!
//!     // And the rest.
//!     pause.copy_from_host(&stream, &[0])?;
//!     let outcome = replay.resume(&stream, |r| solve(r, &kernels, &roots, &pause))?;
//!     assert_eq!(outcome.stopped()?, None);
//!     assert_eq!(replay.counters().builds, 2); // a step from the beginning, and one resumed
//!     roots.check(&stream)
//! }
//! ```
//!
//! [`Replay::resume`] goes on behind the checkpoint with everything as it was: it does not begin
//! anew. The host can look, save, change a value, or never go on. A checkpoint costs a small kernel
//! that reads the flag, and a resumed step is another executable. [`Replay::run`] after it runs the
//! rest again, not the whole step. [`Outcome::stopped`] waits for the step.
//!
//! # 12. Where it runs
//!
//! With the feature `software`, a machine without a GPU runs the same program on a CUDA driver in
//! software, which compiles the kernels' PTX for the CPU. A crate that wants it in tests alone says
//! so:
//!
//! ```toml
//! [dependencies]
//! cuda-graph = "0.1"
//! cudarc = { version = "0.19", default-features = false, features = ["nvrtc"] }
//!
//! [dev-dependencies]
//! cuda-graph = { version = "0.1", features = ["software"] }
//! ```
//!
//! The environment variable `CUDA_GRAPH_DRIVER` takes `auto`, `gpu` or `software`. With `gpu`,
//! tests on a GPU machine fail instead of falling back. This test runs anywhere:
//!
//! ```
//! # const PTX: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/guide/roots.ptx"));
//! # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/guide/roots.rs"));
//! # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/guide/step.rs"));
//! # /// All turns, and the loop around them.
//! # fn solve(r: &mut dyn Recorder, kernels: &Kernels, roots: &Roots, limit: u32) -> Result<()> {
//! #     start(r, roots)?;
//! #     r.do_while_nonzero(&roots.go, |r| turn(r, kernels, roots, limit))
//! # }
//! use cuda_graph::Step;
//!
//! fn finds_roots() -> Result<()> {
//!     let device = cuda_graph::device(0)?;
//!     println!("on {}, driver: {}", device.name()?, device.driver());
//!     let stream = device.context().new_stream()?;
//!     let kernels = Kernels::load(device.context())?;
//!     let roots = Arc::new(Roots::new(&stream, &[2.0, 3.0, 10.0])?);
//!
//!     let used = roots.clone();
//!     let mut step = Step::new(device.context(), move |r| solve(r, &kernels, &used, 100))?;
//!     if let Some(why) = step.why_eager() {
//!         println!("the host drives the loop: {why}");
//!     }
//!     step.launch(&stream)?;
//!     roots.check(&stream)
//! }
//! # fn main() -> Result<()> {
//! #     finds_roots()?;
//! #     let device = cuda_graph::device(0)?;
//! #     let stream = device.context().new_stream()?;
//! #     let (flag, to) = (Buffer::<u32>::zeroed(&stream, 1)?, Buffer::<u32>::zeroed(&stream, 1)?);
//! #     stream.synchronize()?;
//! #     let result = to.clone();
//! #     let branch = move |r: &mut dyn Recorder| -> Result<()> {
//! #         let fill = |value| FillOp::new(&to, value);
//! #         r.if_else_nonzero(
//! #             &flag,
//! #             |r| r.record(fill(1)?).map(drop),
//! #             |r| r.record(fill(2)?).map(drop),
//! #         )
//! #     };
//! #     cuda_graph::testing::with_driver_version(12_040, || {
//! #         let mut step = Step::new(device.context(), branch)?;
//! #         assert!(matches!(step.why_eager(), Some(cuda_graph::Error::Unsupported { .. })));
//! #         step.launch(&stream)?;
//! #         assert_eq!(result.to_host(&stream)?, [2]);
//! #         Ok(())
//! #     })
//! # }
//! ```
//!
//! Kernels and loops need a driver for CUDA 12.4, and `if_else_nonzero` and `switch_on` one for
//! 12.8. Where the driver has no such nodes, to record a loop or branch is [`Error::Unsupported`].
//! A [`Step`] and a [`Replay`] then run the step eagerly: the results are the same, and
//! [`Step::why_eager`] and [`Replay::why_eager`] say why. The software driver's answers are those
//! of a GPU. Its times are not: measure on a GPU.
//!
//! # 13. Several devices
//!
//! Each device takes a part of the numbers. It can improve its own roots alone, but whether another
//! turn is needed all devices must agree on. A [`Communicator`] joins them: each is a *rank*, and
//! has a number. A [`CollectiveOp`] is what they do together. Here it is an all-reduce: every rank
//! gets the largest `moved` of all. It is an operation like any other, so it goes into the loop:
//!
//! ```
//! # const PTX: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/guide/roots.ptx"));
//! # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/guide/roots.rs"));
//! # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/guide/step.rs"));
//! use cuda_graph::{CollectiveOp, Communicator, CommunicatorOptions, Ranks, Reduction};
//!
//! /// As `turn`, with the other ranks.
//! fn turn_together(
//!     r: &mut dyn Recorder,
//!     rank: &Communicator,
//!     kernels: &Kernels,
//!     roots: &Roots,
//! ) -> Result<()> {
//!     let moved = &roots.moved;
//!     r.record(kernels.improve(roots)?)?;
//!     r.record(CollectiveOp::all_reduce(rank, moved, moved, Reduction::Max)?)?;
//!     r.record(kernels.decide(roots, 100)?)?;
//!     Ok(())
//! }
//!
//! fn main() -> Result<()> {
//!     // One context for each device. Ranks may also share one, as they do here.
//!     let device = cuda_graph::device(0)?;
//!     let contexts = [device.context().clone(), device.context().clone()];
//! #   if device.driver() == cuda_graph::Driver::Gpu {
//! #       return Ok(()); // which refuses loops of ranks that share it
//! #   }
//!     let communicators = Communicator::all(&contexts, &CommunicatorOptions::default())?;
//!
//!     let numbers: Vec<f32> = (1..=1000).map(|i| i as f32).collect();
//!     let mut parts = Vec::new();
//!     for (rank, numbers) in communicators.iter().zip(numbers.chunks(500)) {
//!         let stream = rank.context().new_stream()?;
//!         parts.push((Kernels::load(rank.context())?, Roots::new(&stream, numbers)?));
//!     }
//!
//!     let (mut ranks, _) = Ranks::record(&communicators, |rank, path| {
//!         let (kernels, roots) = &parts[rank.rank() as usize];
//!         start(path, roots)?;
//!         path.do_while_nonzero(&roots.go, |r| turn_together(r, rank, kernels, roots))
//!     })?;
//!     ranks.launch()?;
//!     ranks.wait()?;
//!
//!     let turns = |rank: usize| parts[rank].1.turns.to_host(ranks.stream(rank));
//!     assert_eq!(turns(0)?, turns(1)?);
//!     parts[0].1.check(ranks.stream(0))?;
//!     parts[1].1.check(ranks.stream(1))
//! }
//! ```
//!
//! [`Ranks`] records each rank on a thread of its own, launches all, and waits for all. Where each
//! rank is a thread of the program, use [`Exec::launch`] and [`Communicator::wait`].
//!
//! **All ranks do the same.** They do the same collectives in the same order, with as many
//! elements. So a loop or branch around a collective must be decided by a flag that is the same
//! everywhere. An all-reduce makes one: above, every rank computes `go` of the same `moved`, and
//! of a count of turns that is the same. A sum of floats has the same bits on all ranks too.
//!
//! **What goes wrong ends.** If ranks come with different operations, the error names both. If a
//! rank never comes, the wait ends after the communicator's
//! [timeout](CommunicatorOptions::timeout) and names it. Then all that was launched ends, also
//! loops, and the devices stay usable:
//!
//! ```
//! # const PTX: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/guide/roots.ptx"));
//! # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/guide/roots.rs"));
//! use std::time::Duration;
//! use cuda_graph::{CollectiveOp, Communicator, CommunicatorOptions, Ranks, Reduction};
//!
//! fn main() -> Result<()> {
//! #   let device = cuda_graph::device(0)?;
//! #   let contexts = [device.context().clone(), device.context().clone()];
//!     let options = CommunicatorOptions::default().timeout(Duration::from_millis(200));
//!     let communicators = Communicator::all(&contexts, &options)?;
//! #   let stream = device.context().new_stream()?;
//! #   let word = || Buffer::from_host(&stream, &[1u32]);
//! #   let words = [word()?, word()?];
//!     let (mut ranks, _) = Ranks::record(&communicators, |rank, path| {
//!         let word = &words[rank.rank() as usize];
//!         // A mistake: rank 1 does not come.
//!         if rank.rank() == 0 {
//!             path.record(CollectiveOp::all_reduce(rank, word, word, Reduction::Sum)?)?;
//!         }
//!         Ok(())
//!     })?;
//!     ranks.launch()?;
//!     let error = ranks.wait().unwrap_err().to_string();
//!     assert!(error.contains("rank 1 did not come"), "{error}");
//!     Ok(())
//! }
//! ```
//!
//! A communicator that failed stays failed: make another one. Collectives that branches record side
//! by side are put in a line, because all ranks must do them in one order.
//!
//! What does the work is an [`Engine`]. [`Engine::Nccl`] is NVIDIA's library, with the feature
//! `nccl`: what it launches is captured once, and is a kernel like any other. Call
//! [`set_nccl_environment`] at the start of `main`, so that loops can hold it. [`Engine::Plain`] is
//! this library's own, for where there is no NCCL: its ranks are of one process, and meet in memory
//! of the host. It runs on every GPU and on the software driver, and is made for programs that are
//! to be right anywhere, not for speed.
//!
//! **Ranks that share a GPU.** A GPU does not run loops at once that several ranks of one process
//! have on it. Loops with collectives are refused there. Loops without them take turns, in the order
//! of their launches: if a rank launches a loop, a collective and a loop before another rank's loop,
//! the ranks wait for each other until the timeout. The software driver runs loops at once.
//!
//! **What waits for a device.** Some calls of the driver wait until a context has run everything,
//! and let no launch in meanwhile. Between the launches of ranks that share the context, such a call
//! waits until the timeout, and for ever if no other thread waits for a rank. This library puts its
//! own off: freeing a [`PinnedBuffer`](crate::PinnedBuffer), letting an [`Exec`] with branches or
//! loops go. What you call is yours: load kernels, make streams and pinned memory of other libraries
//! before ranks launch, and free them when all have been waited for.
//!
//! **Processes.** Where each rank is a process, as `torchrun`, `mpirun` and `srun` start them, a
//! [`Cluster`] says which one this is, and [`Communicator::join`] meets the others:
//!
//! ```no_run
//! # use cuda_graph::{Cluster, Communicator};
//! # fn main() -> cuda_graph::Result<()> {
//! let cluster = Cluster::from_environment()?;
//! let device = cuda_graph::device(cluster.local_rank() as usize)?;
//! let rank = Communicator::join(device.context(), &cluster, &Default::default())?;
//! # Ok(())
//! # }
//! ```
//!
//! Processes share a GPU if NCCL is told to let them: from 2.30 on, `NCCL_MULTI_RANK_GPU_ENABLE=1`
//! does. Under NVIDIA's multi-process service (`nvidia-cuda-mps-control -d`) their kernels run at
//! once, also in loops. That is how to try a program of several ranks on one GPU. Without the
//! service processes take turns, some milliseconds each; with it, a process that is killed takes
//! the others' contexts along.
//!
//! Kernels, copies and fills reach another device's buffers after [`enable_peer_access`], without
//! any communicator. On the software driver, `SOFTCUDA_DEVICES=4` has four devices.
//!
//! **A kernel that fails** ends all contexts of its process, on all devices: where ranks are to
//! outlive each other's faults, each is a process.
//!
//! # 14. When something goes wrong
//!
//! Errors name the kernel or the node, its label, and the line that made the operation. Give a
//! label to operations that are many of a kind. [`Graph::svg`] draws the graph with the same names:
//!
//! ```
//! # const PTX: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/guide/roots.ptx"));
//! # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/guide/roots.rs"));
//! # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/guide/step.rs"));
//! # /// All turns, and the loop around them.
//! # fn solve(r: &mut dyn Recorder, kernels: &Kernels, roots: &Roots, limit: u32) -> Result<()> {
//! #     start(r, roots)?;
//! #     r.do_while_nonzero(&roots.go, |r| turn(r, kernels, roots, limit))
//! # }
//! use cuda_graph::{Error, Graph, HostOp};
//!
//! fn main() -> Result<()> {
//! #     let device = cuda_graph::device(0)?;
//! #     let stream = device.context().new_stream()?;
//! #     let kernels = Kernels::load(device.context())?;
//! #     let numbers: Vec<f32> = (1..=1000).map(|i| i as f32).collect();
//!     let roots = Roots::new(&stream, &numbers)?;
//!
//!     // SAFETY: the operation is refused.
//!     let refused = unsafe { KernelOp::new(&kernels.decide, ONE, (&roots.moved, &roots.go)) };
//!     let text = refused.err().map(|error| error.to_string());
//!     assert_eq!(text.unwrap(), "kernel `decide` takes 4 arguments and got 2");
//!
//!     // A call of the host cannot be in a loop on the device.
//!     let refused = Graph::record(device.context(), |path| {
//!         path.do_while_nonzero(&roots.go, |r| {
//!             r.record(HostOp::new(|| println!("a turn")).label("tell"))?;
//!             turn(r, &kernels, &roots, 100)
//!         })
//!     });
//!     let error = refused.unwrap_err();
//!     assert!(matches!(error, Error::NotInBody { .. }));
//!     let text = error.to_string();
//!     let start = "a body of a conditional node cannot hold the host node \"tell\" (";
//!     assert!(text.starts_with(start), "{text}"); // the source line follows
//!
//!     let (graph, ()) = Graph::record(device.context(), |path| {
//!         solve(path, &kernels, &roots, 100)
//!     })?;
//!     let picture = graph.svg()?; // write it to a file, and open that in a browser
//!     assert!(picture.contains("while") && picture.contains("decide"));
//!     Ok(())
//! }
//! ```
//!
//! After an error in a recording nothing of it is left, and the stream takes new work. If a result
//! is wrong and there is no error, run the step through an [`Eager`] and look at the buffers
//! between the operations. If a captured block fails, the error says which call the driver refused,
//! the usual cause, and what to do.
//!
//! # 15. The whole program
//!
//! This is the program of chapter 1 with its loop on the device, called for several inputs. It is
//! all there is:
//!
//! ```
//! use cuda_graph::Replay;
#![doc = include_str!("guide/roots.rs")]
#![doc = include_str!("guide/step.rs")]
//!
//! /// All turns, and the loop around them.
//! fn solve(r: &mut dyn Recorder, kernels: &Kernels, roots: &Roots, limit: u32) -> Result<()> {
//!     start(r, roots)?;
//!     r.do_while_nonzero(&roots.go, |r| turn(r, kernels, roots, limit))
//! }
//!
//! fn main() -> Result<()> {
//!     let device = cuda_graph::device(0)?;
//!     let stream = device.context().new_stream()?;
//!     let kernels = Kernels::load(device.context())?;
//!     let mut replay = Replay::new(device.context())?;
//!     for count in [10, 1000, 300, 77] {
//!         let numbers: Vec<f32> = (1..=count).map(|i| i as f32).collect();
//!         let roots = Roots::new(&stream, &numbers)?;
//!         replay.call(&stream, |r| solve(r, &kernels, &roots, 100))?;
//!         roots.check(&stream)?;
//!     }
//!     assert_eq!(replay.counters().builds, 1);
//!     Ok(())
//! }
//!
//! const PTX: &str = r#"
#![doc = include_str!("guide/roots.ptx")]
//! "#;
//! ```
//!
//! A turn was two launches and a wait of the host. Now a whole solve is one launch, which later
//! solves share, and the device decides when it is over.

#![allow(unused_imports, reason = "the links of the guide name them")]

use crate::{
    Buffer, Cluster, CollectiveOp, Communicator, CommunicatorOptions, Counters, Eager, Engine,
    Error, Exec, Graph, Kernel, KernelOp, Outcome, Param, Ranks, Recorder, Replay, Step,
    enable_peer_access, set_nccl_environment,
};
