//! Nodes with edges between them, run in parallel where the edges allow.
//!
//! Nodes that can only run one after the other form a segment, which one thread runs without asking
//! anybody; what is scheduled, counted and locked for is a segment. A line of nodes is one segment,
//! four lanes are four.
//!
//! A node may wait for a node beside it, so while a segment is ready and nobody takes it a thread
//! stands by: it comes in at once where a processor is free, and otherwise when nothing has ended
//! for [`PATIENCE`].
//!
//! Invariants:
//! - a node runs after all nodes that it has an edge from;
//! - after a node failed no other starts, and [`run`] returns when all that have started have
//!   ended.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use parking_lot::{Condvar, Mutex, MutexGuard};
use smallvec::SmallVec;

use super::{Failure, pool};

/// How long a segment is ready before a thread beyond the processors takes it.
const PATIENCE: Duration = Duration::from_millis(1);

/// Nodes in an order that their edges allow, cut into segments.
pub(crate) struct Dag {
    /// All nodes, segment by segment, and in a segment in order.
    order: Box<[u32]>,
    /// Where each segment begins in `order`; one more at the end.
    begin: Box<[u32]>,
    /// How many edges lead into each segment.
    needs: Box<[u32]>,
    /// The segments that edges lead to, segment by segment.
    next: Box<[u32]>,
    /// Where each segment's begin in `next`; one more at the end.
    next_begin: Box<[u32]>,
}

/// There is no order: this node is on a cycle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cycle(pub u32);

/// Lists by number, one behind the other: those of `of` are `items[begin[of]..begin[of + 1]]`.
fn lists(count: usize, pairs: impl Iterator<Item = (u32, u32)> + Clone) -> (Vec<u32>, Vec<u32>) {
    let mut begin = vec![0u32; count + 1];
    for (of, _) in pairs.clone() {
        begin[of as usize + 1] += 1;
    }
    for at in 0..count {
        begin[at + 1] += begin[at];
    }
    let mut filled = begin.clone();
    let mut items = vec![0; begin[count] as usize];
    for (of, item) in pairs {
        let place = &mut filled[of as usize];
        items[*place as usize] = item;
        *place += 1;
    }
    (begin, items)
}

fn list<'a>(begin: &[u32], items: &'a [u32], of: u32) -> &'a [u32] {
    &items[begin[of as usize] as usize..begin[of as usize + 1] as usize]
}

impl Dag {
    /// `count` nodes and the edges between them, from the first of a pair to the second.
    pub fn new(count: u32, edges: &[(u32, u32)]) -> Result<Dag, Cycle> {
        let size = count as usize;
        let (after_begin, after) = lists(size, edges.iter().copied());
        let mut into = vec![0u32; size];
        for &(_, to) in edges {
            into[to as usize] += 1;
        }
        let mut left = into.clone();
        let mut sorted: Vec<u32> = (0..count)
            .filter(|&node| into[node as usize] == 0)
            .collect();
        let mut at = 0;
        while at < sorted.len() {
            for &to in list(&after_begin, &after, sorted[at]) {
                left[to as usize] -= 1;
                if left[to as usize] == 0 {
                    sorted.push(to);
                }
            }
            at += 1;
        }
        if sorted.len() < size {
            return Err(Cycle(on_cycle(edges, &left)));
        }
        // A node goes on its predecessor's segment where neither has another neighbour on that
        // side.
        let mut segment = vec![u32::MAX; size];
        let mut segments = 0;
        for &node in &sorted {
            if segment[node as usize] == u32::MAX {
                segment[node as usize] = segments;
                segments += 1;
            }
            if let &[only] = list(&after_begin, &after, node)
                && into[only as usize] == 1
            {
                segment[only as usize] = segment[node as usize];
            }
        }
        let members = sorted.iter().map(|&node| (segment[node as usize], node));
        let (begin, order) = lists(segments as usize, members);
        let between = edges
            .iter()
            .map(|&(from, to)| (segment[from as usize], segment[to as usize]))
            .filter(|(from, to)| from != to);
        let (next_begin, next) = lists(segments as usize, between);
        let mut needs = vec![0; segments as usize];
        for &to in &next {
            needs[to as usize] += 1;
        }
        Ok(Dag {
            order: order.into(),
            begin: begin.into(),
            needs: needs.into(),
            next: next.into(),
            next_begin: next_begin.into(),
        })
    }

    /// All nodes in an order that the edges allow.
    pub fn order(&self) -> impl Iterator<Item = u32> + '_ {
        // Segments are numbered in the order of their first nodes, but one may need the end of a
        // later one.
        let mut left = self.needs.to_vec();
        let mut ready: VecDeque<u32> = self.roots().collect();
        std::iter::from_fn(move || {
            let segment = ready.pop_front()?;
            for &to in self.after(segment) {
                left[to as usize] -= 1;
                if left[to as usize] == 0 {
                    ready.push_back(to);
                }
            }
            Some(self.nodes(segment).iter().copied())
        })
        .flatten()
    }

    fn segments(&self) -> u32 {
        self.needs.len() as u32
    }

    fn roots(&self) -> impl Iterator<Item = u32> + '_ {
        (0..self.segments()).filter(|&segment| self.needs[segment as usize] == 0)
    }

    fn nodes(&self, segment: u32) -> &[u32] {
        list(&self.begin, &self.order, segment)
    }

    fn after(&self, segment: u32) -> &[u32] {
        list(&self.next_begin, &self.next, segment)
    }
}

/// A node on a cycle, where `left` counts the edges from nodes that cannot come in an order.
fn on_cycle(edges: &[(u32, u32)], left: &[u32]) -> u32 {
    let mut before = vec![None; left.len()];
    for &(from, to) in edges {
        if left[from as usize] > 0 && left[to as usize] > 0 {
            before[to as usize] = Some(from);
        }
    }
    let first = (0..left.len()).find(|&node| left[node] > 0).unwrap_or(0);
    // Going back never ends, so after so many steps it goes round.
    (0..left.len()).fold(first as u32, |node, _| {
        before[node as usize].unwrap_or(node)
    })
}

/// Nodes that do something.
pub(crate) trait Nodes: Send + Sync + 'static {
    /// Their edges.
    fn dag(&self) -> &Dag;
    /// Does what a node does. Nothing else of the run starts after an error.
    fn perform(&self, node: u32) -> Result<(), Failure>;
    /// Something beside the run has failed: nothing more is to start.
    fn given_up(&self) -> bool;
}

struct State {
    /// Segments that nobody has taken.
    ready: VecDeque<u32>,
    /// Segments that have not ended.
    left: u32,
    /// Threads that run a segment.
    running: u32,
    /// Threads that stand by.
    waiting: u32,
    /// Threads that were called and have not come.
    called: u32,
    failure: Option<Failure>,
}

struct Run<N> {
    nodes: Arc<N>,
    /// Edges that each segment still waits for.
    needs: Box<[AtomicU32]>,
    state: Mutex<State>,
    change: Condvar,
    lane: usize,
}

/// How many threads run segments at once, unless they wait for each other.
fn processors() -> u32 {
    static PROCESSORS: OnceLock<u32> = OnceLock::new();
    *PROCESSORS.get_or_init(|| std::thread::available_parallelism().map_or(1, |n| n.get() as u32))
}

/// Runs all nodes once, on this thread and others; `lane` is their priority. The error is the first
/// one.
pub(crate) fn run<N: Nodes>(nodes: &Arc<N>, lane: usize) -> Result<(), Failure> {
    Rounds::new(nodes.clone(), lane).run()
}

/// Nodes that are run any number of times, one time after the other. Each time uses what the first
/// one needed, and finds the threads that have not gone since.
pub(crate) struct Rounds<N> {
    nodes: Arc<N>,
    /// Where there is more than one segment.
    run: Option<Arc<Run<N>>>,
}

impl<N: Nodes> Rounds<N> {
    /// Not run yet.
    pub fn new(nodes: Arc<N>, lane: usize) -> Rounds<N> {
        let dag = nodes.dag();
        let run = (dag.segments() > 1).then(|| {
            Arc::new(Run {
                needs: dag.needs.iter().copied().map(AtomicU32::new).collect(),
                state: Mutex::new(State {
                    ready: VecDeque::with_capacity(dag.segments() as usize),
                    left: 0,
                    running: 0,
                    waiting: 0,
                    called: 0,
                    failure: None,
                }),
                change: Condvar::new(),
                lane,
                nodes: nodes.clone(),
            })
        });
        Rounds { nodes, run }
    }

    /// Runs all nodes once, on this thread and others. The error is the first one.
    pub fn run(&mut self) -> Result<(), Failure> {
        let dag = self.nodes.dag();
        let Some(run) = &self.run else {
            return match dag.segments() {
                0 => Ok(()),
                _ => segment(&*self.nodes, 0),
            };
        };
        let mut state = run.state.lock();
        // All segments of the time before have ended, so nobody looks at these; threads may still
        // be on their way out, or take part again.
        for (left, &needs) in run.needs.iter().zip(&dag.needs) {
            left.store(needs, Ordering::Relaxed);
        }
        state.ready.extend(dag.roots());
        state.left = dag.segments();
        state.failure = None;
        run.take_part(state);
        match run.state.lock().failure {
            None => Ok(()),
            Some(failure) => Err(failure),
        }
    }
}

/// The nodes of a segment, one after the other.
fn segment<N: Nodes>(nodes: &N, segment: u32) -> Result<(), Failure> {
    for &node in nodes.dag().nodes(segment) {
        if nodes.given_up() {
            return Ok(());
        }
        catch_unwind(AssertUnwindSafe(|| nodes.perform(node))).unwrap_or(Err(Failure::PANICKED))?;
    }
    Ok(())
}

impl<N: Nodes> Run<N> {
    /// Runs segments until all have ended.
    fn take_part<'a>(self: &'a Arc<Self>, mut state: MutexGuard<'a, State>) {
        while state.left > 0 {
            match self.take(&mut state) {
                Some(first) => {
                    drop(state);
                    self.work(first);
                    state = self.state.lock();
                    state.running -= 1;
                }
                None => self.stand_by(&mut state),
            }
        }
    }

    /// A ready segment, where a processor is free for it.
    fn take(self: &Arc<Self>, state: &mut State) -> Option<u32> {
        if state.running >= processors() {
            return None;
        }
        self.take_any(state)
    }

    fn take_any(self: &Arc<Self>, state: &mut State) -> Option<u32> {
        let taken = state.ready.pop_front()?;
        state.running += 1;
        self.call(state);
        Some(taken)
    }

    /// Sees to it that a thread stands by while a segment is ready.
    fn call(self: &Arc<Self>, state: &mut State) {
        if !state.ready.is_empty() && state.waiting + state.called == 0 {
            state.called += 1;
            let run = self.clone();
            let helps = move || {
                let mut state = run.state.lock();
                state.called -= 1;
                run.take_part(state);
            };
            pool::start(Box::new(helps), self.lane);
        }
    }

    /// Waits for a segment; takes part at once when those that run do not get on.
    fn stand_by(self: &Arc<Self>, state: &mut MutexGuard<'_, State>) {
        let left = state.left;
        let crowded = !state.ready.is_empty();
        state.waiting += 1;
        let timed_out = match crowded {
            true => self.change.wait_for(state, PATIENCE).timed_out(),
            false => {
                self.change.wait(state);
                false
            }
        };
        state.waiting -= 1;
        if timed_out
            && state.left == left
            && left > 0
            && let Some(first) = self.take_any(state)
        {
            MutexGuard::unlocked(state, || self.work(first));
            state.running -= 1;
        }
    }

    /// Runs a segment, and one after it, as long as there is one that nobody else has.
    fn work(self: &Arc<Self>, first: u32) {
        let mut next = Some(first);
        while let Some(now) = next {
            if let Err(failure) = segment(&*self.nodes, now) {
                // Known before anything is counted down: another thread that then finds a segment
                // ready skips it.
                self.state.lock().failure.get_or_insert(failure);
            }
            let mut ready: SmallVec<[u32; 8]> = SmallVec::new();
            for &to in self.nodes.dag().after(now) {
                if self.needs[to as usize].fetch_sub(1, Ordering::AcqRel) == 1 {
                    ready.push(to);
                }
            }
            let mut state = self.state.lock();
            state.left -= 1;
            if state.failure.is_some() {
                // What has not started ends without having run.
                let skipped: Vec<u32> = state.ready.drain(..).chain(ready.drain(..)).collect();
                self.skip(&mut state, skipped);
            }
            next = ready.first().copied();
            state.ready.extend(ready.iter().skip(1));
            if next.is_none() {
                next = state.ready.pop_front();
            }
            match state.left {
                0 => {
                    self.change.notify_all();
                }
                _ if !state.ready.is_empty() && state.waiting > 0 => {
                    self.change.notify_one();
                }
                _ => self.call(&mut state),
            }
        }
    }

    /// Counts segments that will not run, and all that only they lead to, as ended.
    fn skip(&self, state: &mut State, mut skipped: Vec<u32>) {
        while let Some(segment) = skipped.pop() {
            state.left -= 1;
            for &to in self.nodes.dag().after(segment) {
                if self.needs[to as usize].fetch_sub(1, Ordering::AcqRel) == 1 {
                    skipped.push(to);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use proptest::prelude::*;

    use super::*;

    struct Recorder<F> {
        dag: Dag,
        perform: F,
    }

    impl<F: Fn(u32) -> Result<(), Failure> + Send + Sync + 'static> Nodes for Recorder<F> {
        fn dag(&self) -> &Dag {
            &self.dag
        }

        fn perform(&self, node: u32) -> Result<(), Failure> {
            (self.perform)(node)
        }

        fn given_up(&self) -> bool {
            false
        }
    }

    fn run_with(
        dag: Dag,
        perform: impl Fn(u32) -> Result<(), Failure> + Send + Sync + 'static,
    ) -> Result<(), Failure> {
        run(&Arc::new(Recorder { dag, perform }), 0)
    }

    fn graphs() -> impl Strategy<Value = (u32, Vec<(u32, u32)>)> {
        (1u32..40).prop_flat_map(|count| {
            let edges = prop::collection::vec((0..count, 0..count), 0..80);
            (Just(count), edges).prop_map(|(count, mut edges)| {
                edges.retain(|(from, to)| from < to);
                edges.sort_unstable();
                edges.dedup();
                // Nodes need not be numbered in an order.
                for (from, to) in &mut edges {
                    (*from, *to) = ((*from * 7 + 3) % 41, (*to * 7 + 3) % 41);
                }
                (41.max(count), edges)
            })
        })
    }

    proptest! {
        #[test]
        fn every_node_runs_once_after_those_before_it((count, edges) in graphs()) {
            let dag = Dag::new(count, &edges).unwrap();
            let listed: Vec<u32> = dag.order().collect();
            let place = |node| listed.iter().position(|&other| other == node).unwrap();
            prop_assert_eq!(listed.len(), count as usize);
            for &(from, to) in &edges {
                prop_assert!(place(from) < place(to));
            }
            let seen: Arc<Mutex<Vec<u32>>> = Arc::default();
            let log = seen.clone();
            run_with(dag, move |node| { log.lock().push(node); Ok(()) }).unwrap();
            let seen = seen.lock();
            let place = |node| seen.iter().position(|&other| other == node).unwrap();
            prop_assert_eq!(seen.len(), count as usize);
            for &(from, to) in &edges {
                prop_assert!(place(from) < place(to));
            }
        }

        #[test]
        fn after_a_failure_nothing_that_depends_on_it_runs((count, edges) in graphs(), bad in 0u32..41) {
            let seen: Arc<Mutex<Vec<u32>>> = Arc::default();
            let log = seen.clone();
            let result = run_with(Dag::new(count, &edges).unwrap(), move |node| {
                log.lock().push(node);
                match node == bad { true => Err(Failure(7)), false => Ok(()) }
            });
            prop_assert_eq!(result, Err(Failure(7)));
            let seen = seen.lock();
            for &(from, to) in &edges {
                prop_assert!(from != bad || !seen.contains(&to));
            }
        }
    }

    /// Two nodes that others wait for, one of which fails at the moment in which the other one
    /// ends.
    #[test]
    fn a_failure_is_known_before_what_waits_for_it_is_ready() {
        // One waits for both. The many that wait for the failing one alone make it take long to
        // count down.
        let mut edges: Vec<(u32, u32)> = (2..2_000).map(|node| (1, node)).collect();
        edges.push((0, 2));
        for _ in 0..3_000 {
            let ran = Arc::new(AtomicBool::new(false));
            let late = ran.clone();
            let meet = Arc::new(AtomicU32::new(0));
            let result = run_with(Dag::new(2_000, &edges).unwrap(), move |node| {
                if node > 1 {
                    late.store(true, Ordering::SeqCst);
                    return Ok(());
                }
                meet.fetch_add(1, Ordering::SeqCst);
                while meet.load(Ordering::SeqCst) < 2 {
                    std::thread::yield_now();
                }
                match node {
                    1 => Err(Failure(7)),
                    _ => Ok(()),
                }
            });
            assert_eq!(result, Err(Failure(7)));
            assert!(!ran.load(Ordering::SeqCst));
        }
    }

    #[test]
    fn a_cycle_is_found_and_not_what_hangs_on_it() {
        let edges = [(0, 1), (1, 2), (2, 3), (3, 1), (3, 4), (4, 5)];
        let Err(Cycle(node)) = Dag::new(6, &edges) else {
            panic!("it has no order")
        };
        assert!((1..4).contains(&node), "{node}");
        assert_eq!(Dag::new(1, &[(0, 0)]).err(), Some(Cycle(0)));
    }

    #[test]
    fn nodes_that_wait_for_each_other_get_on() {
        // One more than there are processors, each waiting for all the others.
        let count = processors() + 3;
        let here = Arc::new(AtomicU32::new(0));
        let arrived = here.clone();
        run_with(Dag::new(count, &[]).unwrap(), move |_| {
            arrived.fetch_add(1, Ordering::SeqCst);
            while arrived.load(Ordering::SeqCst) < count {
                std::thread::yield_now();
            }
            Ok(())
        })
        .unwrap();
        assert_eq!(here.load(Ordering::SeqCst), count);
    }

    #[test]
    fn a_panic_is_a_failure_and_a_line_is_one_segment() {
        let line: Vec<(u32, u32)> = (1..1000).map(|node| (node - 1, node)).collect();
        let dag = Dag::new(1000, &line).unwrap();
        assert_eq!(dag.segments(), 1);
        let late = Arc::new(AtomicBool::new(false));
        let ran = late.clone();
        let result = run_with(dag, move |node| {
            assert!(node != 500, "as meant");
            ran.fetch_or(node > 500, Ordering::SeqCst);
            Ok(())
        });
        assert_eq!(result, Err(Failure::PANICKED));
        assert!(!late.load(Ordering::SeqCst));
    }
}
