//! Gives programs to recorders.

use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, OnceLock};

use cuda_graph::cudarc::driver::{CudaFunction, CudaModule, CudaStream, PushKernelArg, result};
use cuda_graph::cudarc::nvrtc::Ptx;
use cuda_graph::{
    AnyOp, Body, Branch, Buffer, Capture, CopyOp, Error, FillOp, Graph, Joint, Kernel, KernelOp,
    Kind, Recorder, Result,
};

use super::is_free;
use super::program::{Act, Around, CELLS, Control, Failing, How, Work};
use crate::fixture::{Watch, assert_soon, context, function, kernel, one, stream};

/// `few(to, from)`: `*to = *from & 3`. `stray(to)`: `*to = 77`. The others are of the fixture.
const PTX: &str = "
.version 7.0
.target sm_70
.address_size 64

.visible .entry few(.param .u64 to, .param .u64 from)
{
    .reg .b32 %v;
    .reg .b64 %p, %q;
    ld.param.u64 %p, [to];
    ld.param.u64 %q, [from];
    ld.global.u32 %v, [%q];
    and.b32 %v, %v, 3;
    st.global.u32 [%p], %v;
    ret;
}

.visible .entry stray(.param .u64 to)
{
    .reg .b32 %v;
    .reg .b64 %p;
    ld.param.u64 %p, [to];
    mov.u32 %v, 77;
    st.global.u32 [%p], %v;
    ret;
}
";

struct Kernels {
    put: CudaFunction,
    plus: CudaFunction,
    stray: CudaFunction,
    typed: [Kernel; 3],
}

/// They are loaded once, before anything is captured.
fn kernels() -> &'static Kernels {
    static KERNELS: OnceLock<(Arc<CudaModule>, Kernels)> = OnceLock::new();
    let (_, kernels) = KERNELS.get_or_init(|| {
        let module = context().load_module(Ptx::from_src(PTX)).expect("it loads");
        let own = |name| module.load_function(name).expect("it is there");
        let few = Kernel::new(&own("few")).expect("its parameters are known");
        let kernels = Kernels {
            put: function("store"),
            plus: function("add"),
            stray: own("stray"),
            typed: [kernel("store"), kernel("add"), few],
        };
        (module, kernels)
    });
    kernels
}

/// The memory that a program works on, and its streams.
pub struct World {
    pub stream: Arc<CudaStream>,
    /// For forks at each depth.
    sides: [Arc<CudaStream>; 3],
    /// The program's words; and one that is 0, one that is 1, one that is -1, one for stray
    /// launches; and the values from 0 to 3.
    all: Buffer<u32>,
    cells: Vec<Buffer<u32>>,
}

impl World {
    pub fn new(cells: usize) -> World {
        kernels();
        let (stream, len) = (stream(), cells + 8);
        let all = Buffer::zeroed(&stream, len).expect("it fits");
        let part = |at: usize| all.slice(at..at + 1).expect("it is a part");
        World {
            cells: (0..len).map(part).collect(),
            sides: [(), (), ()].map(|()| crate::fixture::stream()),
            all,
            stream,
        }
    }

    pub fn cell(&self, number: usize) -> &Buffer<u32> {
        &self.cells[number]
    }

    /// Word `number` of those behind the program's.
    fn own(&self, number: usize) -> &Buffer<u32> {
        &self.cells[self.cells.len() - 8 + number]
    }

    fn never(&self) -> &Buffer<u32> {
        self.own(0)
    }

    pub fn always(&self) -> &Buffer<u32> {
        self.own(1)
    }

    /// All words as they are before a program runs.
    pub fn start(&self, cells: &[u32]) -> Vec<u32> {
        assert_eq!(cells.len(), CELLS);
        let mut words = cells.to_vec();
        words.resize(self.cells.len() - 8, 9);
        words.extend([0, 1, u32::MAX, 5, 0, 1, 2, 3]);
        words
    }

    pub fn write(&self, words: &[u32]) {
        self.all
            .copy_from_host(&self.stream, words)
            .expect("it fits");
        // The forks' streams do not wait for this one by themselves.
        self.stream.synchronize().expect("it runs");
    }

    pub fn read(&self) -> Vec<u32> {
        self.all.to_host(&self.stream).expect("it ran")
    }

    pub fn put(&self, to: &Buffer<u32>, value: u32) -> KernelOp {
        // SAFETY: `put` writes one word.
        unsafe { KernelOp::new(&kernels().typed[0], one(), (to, value)) }.expect("they fit")
    }

    fn plus(&self, to: &Buffer<u32>, from: &Buffer<u32>) -> KernelOp {
        // SAFETY: `plus` reads and writes one word of each.
        unsafe { KernelOp::new(&kernels().typed[1], one(), (to, from)) }.expect("they fit")
    }

    fn few(&self, to: &Buffer<u32>, from: &Buffer<u32>) -> KernelOp {
        // SAFETY: `few` reads one word and writes one.
        unsafe { KernelOp::new(&kernels().typed[2], one(), (to, from)) }.expect("they fit")
    }

    fn launch(
        &self,
        stream: &Arc<CudaStream>,
        function: &CudaFunction,
        to: usize,
        with: Option<u64>,
        value: u32,
    ) -> Result<()> {
        let to = self.cell(to).address();
        let mut launch = stream.launch_builder(function);
        launch.arg(&to);
        match &with {
            Some(from) => launch.arg(from),
            None => launch.arg(&value),
        };
        // SAFETY: the kernels use one word of each, which live as long as the programs.
        unsafe { launch.launch(one()) }?;
        Ok(())
    }

    /// What other code does with a stream of its own.
    fn work(&self, stream: &Arc<CudaStream>, works: &[Work], depth: usize) -> Result<()> {
        let at = |cell: usize| self.cell(cell).address();
        for work in works {
            match work {
                Work::Put { to, value } => {
                    self.launch(stream, &kernels().put, *to, None, *value)?;
                }
                Work::Plus { to, from } => {
                    self.launch(stream, &kernels().plus, *to, Some(at(*from)), 0)?;
                }
                Work::Fill { to, value } => {
                    // SAFETY: it writes a word.
                    unsafe {
                        result::memset_d8_async(at(*to), *value as u8, 4, stream.cu_stream())
                    }?;
                }
                // A copy to itself is none.
                Work::Copy { to, from } if to == from => {}
                Work::Copy { to, from } => {
                    // SAFETY: it reads a word and writes one.
                    unsafe {
                        result::memcpy_dtod_async(at(*to), at(*from), 4, stream.cu_stream())
                    }?;
                }
                Work::Fork { side, beside } => {
                    let other = &self.sides[depth];
                    other.wait(&stream.record_event(None)?)?;
                    self.work(other, side, depth + 1)?;
                    self.work(stream, beside, depth + 1)?;
                    stream.join(other)?;
                }
            }
        }
        Ok(())
    }

    /// The same, of what comes to nothing.
    fn fail(&self, stream: &Arc<CudaStream>, works: &[Work], how: Failing) -> Result<()> {
        self.work(stream, works, 0)?;
        match how {
            Failing::Error => Err(as_meant()),
            Failing::Unjoined => {
                self.sides[2].wait(&stream.record_event(None)?)?;
                self.launch(
                    &self.sides[2],
                    &kernels().plus,
                    0,
                    Some(self.cell(1).address()),
                    0,
                )?;
                Err(as_meant())
            }
            Failing::Invalid => Ok(stream.synchronize()?),
            Failing::Silent => {
                let _ = stream.synchronize();
                Ok(())
            }
            Failing::Panic => resume_unwind(Box::new("as meant")),
        }
    }

    /// The streams take new work, run it, and are captured again.
    pub fn assert_usable(&self) {
        for stream in self.sides.iter().chain([&self.stream]) {
            assert!(is_free(stream), "a stream is left in a capture");
            stream.synchronize().expect("it is idle");
        }
        let mut words = self.start(&[0; CELLS]);
        self.write(&words);
        let twice = |stream: &Arc<CudaStream>| {
            let one = Some(self.always().address());
            self.launch(stream, &kernels().plus, 0, one, 0)
        };
        for stream in self.sides.iter().chain([&self.stream]) {
            twice(stream).expect("it launches");
            stream.synchronize().expect("it runs");
        }
        let captured = Graph::capture(&self.stream, |path| {
            path.record(self.plus(self.cell(1), self.always()))?;
            // SAFETY: the words live as long as this.
            unsafe { path.foreign(twice) }
        });
        let (graph, ()) = captured.expect("the stream can be captured");
        graph.instantiate().unwrap().launch(&self.stream).unwrap();
        (words[0], words[1]) = (5, 1);
        assert_eq!(self.read(), words);
    }
}

fn as_meant() -> Error {
    Error::other(std::io::Error::other("as meant"))
}

/// What was recorded last, in the order of time.
#[derive(Clone, Debug)]
pub enum Last {
    Nothing,
    /// An operation with this label.
    Op(String),
    /// A foreign block that was begun at this line.
    Block(u32),
}

/// What an error about stray work is to say.
#[derive(Clone, Debug)]
pub struct SeenStray {
    pub strays: usize,
    pub last: Last,
    pub before: Option<String>,
}

/// One walk through a program.
pub struct Walk<'a> {
    pub world: &'a World,
    records: bool,
    /// It goes into a graph that is there.
    is_aside: bool,
    labels: Cell<u32>,
    strays: Cell<usize>,
    last: RefCell<Last>,
    /// Of the last error about stray work.
    seen: RefCell<Option<SeenStray>>,
    /// What was kept outside of what failed, and all that was.
    kept: RefCell<Vec<Watch>>,
    all: RefCell<Vec<Watch>>,
}

impl<'a> Walk<'a> {
    pub fn running(world: &'a World) -> Walk<'a> {
        Walk {
            world,
            records: false,
            is_aside: false,
            labels: Cell::new(0),
            strays: Cell::new(0),
            last: RefCell::new(Last::Nothing),
            seen: RefCell::default(),
            kept: RefCell::default(),
            all: RefCell::default(),
        }
    }

    pub fn recording(world: &'a World, is_aside: bool) -> Walk<'a> {
        Walk {
            records: true,
            is_aside,
            ..Walk::running(world)
        }
    }

    /// How many stray launches there were.
    pub fn strays(&self) -> usize {
        self.strays.get()
    }

    /// What the error that came out says; one that was found at the end says this.
    pub fn seen(&self) -> SeenStray {
        self.seen.borrow().clone().unwrap_or_else(|| self.now(None))
    }

    fn now(&self, before: Option<&str>) -> SeenStray {
        SeenStray {
            strays: self.strays(),
            last: self.last.borrow().clone(),
            before: before.map(str::to_owned),
        }
    }

    /// Looks at what a call of the library answered.
    fn look<T>(&self, before: Option<&str>, answer: Result<T>) -> Result<T> {
        if let Err(Error::StrayWork(_)) = &answer
            && self.seen.borrow().is_none()
        {
            *self.seen.borrow_mut() = Some(self.now(before));
        }
        answer
    }

    /// An error was swallowed.
    fn forget(&self) {
        *self.seen.borrow_mut() = None;
    }

    #[track_caller]
    pub fn assert_kept(&self) {
        for watch in &*self.kept.borrow() {
            assert!(!watch.is_dropped(), "what was kept went early");
        }
    }

    #[track_caller]
    pub fn assert_all_gone(&self, how: &str) {
        for watch in &*self.all.borrow() {
            assert_soon(
                || watch.is_dropped(),
                &format!("what was kept leaks: {how}"),
            );
        }
    }

    fn record(&self, r: &mut dyn Recorder, op: impl FnOnce(&str) -> AnyOp) -> Result<()> {
        let label = format!("op {}", self.labels.get());
        self.labels.set(self.labels.get() + 1);
        let answer = r.record(op(&label));
        self.look(Some(&label), answer)?;
        *self.last.borrow_mut() = Last::Op(label);
        Ok(())
    }

    fn block_was_recorded(&self, works: &[Work], line: u32) {
        // Of an empty block nothing is recorded.
        if works.iter().any(is_something) {
            *self.last.borrow_mut() = Last::Block(line);
        }
    }

    /// Launches what is no part of the program.
    fn stray(&self) -> Result<()> {
        if self.records {
            let world = self.world;
            let to = world.own(3).address();
            let mut launch = world.stream.launch_builder(&kernels().stray);
            launch.arg(&to);
            // SAFETY: `stray` writes one word.
            unsafe { launch.launch(one()) }?;
            self.strays.set(self.strays() + 1);
        }
        Ok(())
    }
}

/// Whether it becomes a node.
fn is_something(work: &Work) -> bool {
    match work {
        Work::Copy { to, from } => to != from,
        Work::Fork { side, beside } => side.iter().chain(beside).any(is_something),
        _ => true,
    }
}

/// What a closure does, which may panic as is meant.
fn catching<T>(body: impl FnOnce() -> Result<T>) -> Result<T> {
    catch_unwind(AssertUnwindSafe(body)).unwrap_or_else(|panic| {
        match panic.downcast_ref::<&str>() {
            Some(&"as meant") => Err(as_meant()),
            _ => resume_unwind(panic),
        }
    })
}

/// Gives `acts` to any recorder.
pub fn walk(r: &mut dyn Recorder, acts: &[Act], walking: &Walk<'_>) -> Result<()> {
    let world = walking.world;
    for act in acts {
        match act {
            Act::Put { to, value, how } => walking.record(r, |label| {
                let to = world.cell(*to);
                match how {
                    How::Kernel => world.put(to, *value).label(label).into(),
                    How::Fill => FillOp::new(to, *value).unwrap().label(label).into(),
                    How::Copy => {
                        let from = world.own(4 + *value as usize);
                        CopyOp::new(to, from).unwrap().label(label).into()
                    }
                }
            })?,
            Act::Plus { to, from } => walking.record(r, |label| {
                let op = world.plus(world.cell(*to), world.cell(*from));
                op.label(label).into()
            })?,
            Act::Few { to, from } => walking.record(r, |label| {
                let op = world.few(world.cell(*to), world.cell(*from));
                op.label(label).into()
            })?,
            Act::Less(at) => walking.record(r, |label| {
                let op = world.plus(world.cell(*at), world.own(2));
                op.label(label).into()
            })?,
            Act::Foreign { works, fails } => walk_block(r, works, *fails, walking)?,
            Act::Flow {
                control,
                on,
                bodies,
            } => {
                let flag = world.cell(*on);
                each(bodies, walking, |bodies| {
                    let answer = flow(r, *control, flag, bodies);
                    walking.look(None, answer)
                })?;
            }
            Act::Side(branches) => each(branches, walking, |bodies| r.parallel(bodies))?,
            Act::Swallow {
                around,
                panics,
                acts,
            } => {
                let kept = walking.kept.borrow().len();
                let mut body = |r: &mut dyn Recorder| {
                    walk(r, acts, walking)?;
                    match panics {
                        true => resume_unwind(Box::new("as meant")),
                        false => Err(as_meant()),
                    }
                };
                let failed = catching(|| match around {
                    Around::While => r.while_nonzero(world.never(), body),
                    Around::If => r.if_nonzero(world.never(), body),
                    Around::Switch => {
                        // The case that fails is not the one that is taken.
                        let mut first = |_: &mut dyn Recorder| Ok(());
                        r.switch_on(world.never(), &mut [&mut first, &mut body])
                    }
                    Around::Parallel => r.parallel(&mut [&mut body]),
                });
                assert!(failed.is_err() || !walking.records);
                walking.forget();
                // Nothing of a body that failed is recorded. Of a branch it is.
                if walking.records && !matches!(around, Around::Parallel) {
                    walking.kept.borrow_mut().truncate(kept);
                }
            }
            Act::Keep => {
                let (watch, watched) = Watch::new();
                r.keep(Arc::new(watched))?;
                walking.kept.borrow_mut().push(watch.clone());
                walking.all.borrow_mut().push(watch);
            }
            Act::Stray => walking.stray()?,
        }
    }
    Ok(())
}

fn walk_block(
    r: &mut dyn Recorder,
    works: &[Work],
    fails: Option<Failing>,
    walking: &Walk<'_>,
) -> Result<()> {
    let world = walking.world;
    let Some(how) = fails else {
        let line = line!() + 2;
        // SAFETY: the words live as long as the programs.
        let answer = unsafe { r.foreign(|stream| world.work(stream, works, 0)) };
        walking.look(None, answer)?;
        walking.block_was_recorded(works, line);
        return Ok(());
    };
    // A recording goes on as if there had been no such block.
    if walking.records {
        // SAFETY: as above.
        let failed = catching(|| unsafe { r.foreign(|stream| world.fail(stream, works, how)) });
        stop_at_stray(failed, walking)?;
    }
    Ok(())
}

/// Looks at the error of a block that was to fail.
fn stop_at_stray(failed: Result<()>, walking: &Walk<'_>) -> Result<()> {
    match walking.look(None, failed) {
        Err(error @ Error::StrayWork(_)) => Err(error),
        Err(Error::CaptureInvalidated(_) | Error::Other(_)) => Ok(()),
        other => panic!("a block that fails: {other:?}"),
    }
}

fn flow(
    r: &mut dyn Recorder,
    control: Control,
    flag: &Buffer<u32>,
    bodies: &mut [&mut Body<'_>],
) -> Result<()> {
    match (control, bodies) {
        (Control::While, [body]) => r.while_nonzero(flag, body),
        (Control::DoWhile, [body]) => r.do_while_nonzero(flag, body),
        (Control::If, [body]) => r.if_nonzero(flag, body),
        (Control::IfElse, [then, otherwise]) => r.if_else_nonzero(flag, then, otherwise),
        (Control::Switch, cases) => r.switch_on(flag, cases),
        _ => unreachable!("programs have as many bodies as there are"),
    }
}

/// Gives `take` a closure for each list.
fn each(
    lists: &[Vec<Act>],
    walking: &Walk<'_>,
    take: impl FnOnce(&mut [&mut Body<'_>]) -> Result<()>,
) -> Result<()> {
    let closure = |acts: &'_ Vec<Act>| {
        let acts = acts.clone();
        move |r: &mut dyn Recorder| walk(r, &acts, walking)
    };
    let mut closures: Vec<_> = lists.iter().map(closure).collect();
    let mut bodies: Vec<&mut Body<'_>> = Vec::new();
    for closure in &mut closures {
        bodies.push(closure);
    }
    take(&mut bodies)
}

/// Gives `acts` to a guard, with guards of blocks, and splits where branches are.
pub fn walk_guard<K: Kind>(
    mut guard: Capture<K>,
    acts: &[Act],
    walking: &Walk<'_>,
) -> Result<Capture<K>> {
    for act in acts {
        guard = match act {
            Act::Side(branches) => match branches.as_slice() {
                [_] => split::<K, 1>(guard, branches, walking)?,
                [_, _] => split::<K, 2>(guard, branches, walking)?,
                _ => split::<K, 3>(guard, branches, walking)?,
            },
            Act::Foreign { works, fails } => {
                guard_block(&mut guard, works, *fails, walking)?;
                guard
            }
            act => {
                walk(&mut *guard, std::slice::from_ref(act), walking)?;
                guard
            }
        };
    }
    Ok(guard)
}

fn guard_block<K: Kind>(
    guard: &mut Capture<K>,
    works: &[Work],
    fails: Option<Failing>,
    walking: &Walk<'_>,
) -> Result<()> {
    let (world, line) = (walking.world, line!() + 2);
    // SAFETY: the words live as long as the programs.
    let begun = unsafe { guard.begin_foreign() };
    let block = walking.look(None, begun)?;
    let stream = block.stream().clone();
    let Some(how) = fails else {
        world.work(&stream, works, 0)?;
        block.end()?;
        walking.block_was_recorded(works, line);
        return Ok(());
    };
    match catching(|| world.fail(&stream, works, how)) {
        // It was invalidated, and says so.
        Ok(()) => stop_at_stray(block.end(), walking),
        Err(_) => {
            drop(block);
            Ok(())
        }
    }
}

fn split<K: Kind, const N: usize>(
    mut guard: Capture<K>,
    branches: &[Vec<Act>],
    walking: &Walk<'_>,
) -> Result<Capture<K>> {
    // What goes into a graph that is there has branches in closures alone.
    if walking.is_aside {
        let act = Act::Side(branches.to_vec());
        walk(&mut *guard, &[act], walking)?;
        return Ok(guard);
    }
    let (joint, sides): (Joint<K, N>, [Capture<Branch>; N]) = guard.split()?;
    let mut walked = Vec::new();
    for (side, acts) in sides.into_iter().zip(branches) {
        walked.push(walk_guard(side, acts, walking)?);
    }
    match walked.try_into() {
        Ok(sides) => joint.join(sides),
        Err(_) => unreachable!("each branch was walked"),
    }
}
