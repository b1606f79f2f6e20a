//! Random programs of streams and events against the order they must keep, and the ways a queue can
//! go wrong.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use proptest::prelude::*;

use super::{Domain, Failure, Fate, Marker, Queue, Role, Step};

#[derive(Default)]
struct TestFate(Mutex<Option<Failure>>);

impl Fate for TestFate {
    fn failure(&self) -> Option<Failure> {
        *self.0.lock()
    }
    fn fail(&self, error: Failure) {
        self.0.lock().get_or_insert(error);
    }
}

fn domain() -> Domain {
    Domain::new(Arc::new(TestFate::default()))
}

fn brief(f: impl FnOnce() + Send + 'static) -> Step {
    Step::Brief(Box::new(move || {
        f();
        Ok(())
    }))
}

fn device(f: impl FnOnce() + Send + 'static) -> Step {
    Step::Device(Box::new(move || {
        f();
        Ok(())
    }))
}

/// What a program does with its streams and events, by index.
#[derive(Clone, Debug)]
enum Action {
    Device(usize),
    Host(usize),
    Record(usize, usize),
    Wait(usize, usize),
    Synchronize(usize),
}

const STREAMS: usize = 5;
const EVENTS: usize = 4;

fn actions() -> impl Strategy<Value = Vec<Action>> {
    let (s, e) = (0..STREAMS, 0..EVENTS);
    let one = prop_oneof![
        6 => s.clone().prop_map(Action::Device),
        2 => s.clone().prop_map(Action::Host),
        3 => (s.clone(), e.clone()).prop_map(|(s, e)| Action::Record(s, e)),
        3 => (s.clone(), e).prop_map(|(s, e)| Action::Wait(s, e)),
        1 => s.prop_map(Action::Synchronize),
    ];
    prop::collection::vec(one, 1..80)
}

/// Stream 0 is the legacy one, 1 to 3 are blocking, 4 is not.
fn role(stream: usize) -> Role {
    [
        Role::Legacy,
        Role::Blocking,
        Role::Blocking,
        Role::Blocking,
        Role::NonBlocking,
    ][stream]
}

/// Runs the program; each step checks that all steps which must come before it have ended.
fn run(program: &[Action]) {
    let domain = domain();
    let queues: Vec<Arc<Queue>> = (0..STREAMS)
        .map(|stream| match role(stream) {
            Role::Legacy => domain.legacy().clone(),
            role => domain.open(role, stream),
        })
        .collect();
    let ended: Arc<Vec<AtomicBool>> =
        Arc::new((0..program.len()).map(|_| AtomicBool::new(false)).collect());
    let wrong = Arc::new(AtomicUsize::new(0));
    // The model: what must have ended before the next step of a stream, and before an event.
    let mut before: Vec<Vec<usize>> = vec![Vec::new(); STREAMS];
    let mut own: Vec<Vec<usize>> = vec![Vec::new(); STREAMS];
    let mut events: Vec<Option<(Arc<Marker>, Vec<usize>)>> = vec![None; EVENTS];
    for (index, action) in program.iter().enumerate() {
        match action {
            Action::Device(stream) | Action::Host(stream) => {
                legacy_rule(&mut before, &own, *stream);
                let must = before[*stream].clone();
                let (ended, wrong) = (ended.clone(), wrong.clone());
                let body = move || {
                    if !must.iter().all(|&step| ended[step].load(SeqCst)) {
                        wrong.fetch_add(1, SeqCst);
                    }
                    if index % 7 == 0 {
                        std::thread::sleep(Duration::from_micros(30));
                    }
                    ended[index].store(true, SeqCst);
                };
                let step = match action {
                    Action::Host(_) => Step::Host(Box::new(body)),
                    _ if index % 2 == 0 => brief(body),
                    _ => device(body),
                };
                domain.submit(&queues[*stream], step);
                before[*stream].push(index);
                own[*stream].push(index);
            }
            Action::Record(stream, event) => {
                legacy_rule(&mut before, &own, *stream);
                events[*event] = Some((domain.record(&queues[*stream]), before[*stream].clone()));
            }
            Action::Wait(stream, event) => {
                if let Some((marker, steps)) = &events[*event] {
                    domain.submit(&queues[*stream], Step::Wait(marker.clone()));
                    before[*stream].extend(steps);
                }
            }
            Action::Synchronize(stream) => {
                domain.synchronize(&queues[*stream]);
                assert!(before[*stream].iter().all(|&step| ended[step].load(SeqCst)));
            }
        }
    }
    domain.synchronize_all();
    assert_eq!(
        wrong.load(SeqCst),
        0,
        "a step ran before one it must follow"
    );
    for (index, action) in program.iter().enumerate() {
        let runs = matches!(action, Action::Device(_) | Action::Host(_));
        assert_eq!(ended[index].load(SeqCst), runs);
    }
    assert!(queues.iter().all(|queue| domain.is_idle(queue)));
}

fn legacy_rule(before: &mut [Vec<usize>], own: &[Vec<usize>], stream: usize) {
    let others: Vec<usize> = match role(stream) {
        Role::Legacy => (1..STREAMS)
            .filter(|&other| role(other) == Role::Blocking)
            .collect(),
        Role::Blocking => vec![0],
        Role::NonBlocking => Vec::new(),
    };
    for other in others {
        before[stream].extend(&own[other]);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]
    #[test]
    fn a_random_program_keeps_its_order(program in actions()) {
        run(&program);
    }
}

#[test]
fn many_threads_push_and_synchronize() {
    let domain = Arc::new(domain());
    let shared = domain.open(Role::NonBlocking, 0);
    let total = Arc::new(AtomicU32::new(0));
    let threads: Vec<_> = (0..8)
        .map(|thread| {
            let (domain, shared, total) = (domain.clone(), shared.clone(), total.clone());
            std::thread::spawn(move || {
                let own = domain.open(
                    if thread % 2 == 0 {
                        Role::Blocking
                    } else {
                        Role::NonBlocking
                    },
                    thread % 6,
                );
                for round in 0..400 {
                    let total_ = total.clone();
                    domain.submit(
                        &own,
                        device(move || {
                            total_.fetch_add(1, SeqCst);
                        }),
                    );
                    let marker = domain.record(&own);
                    domain.submit(&shared, Step::Wait(marker));
                    let total_ = total.clone();
                    domain.submit(
                        &shared,
                        device(move || {
                            total_.fetch_add(1, SeqCst);
                        }),
                    );
                    if round % 5 == thread % 5 {
                        domain.synchronize(&own);
                    }
                    if round % 50 == 0 {
                        domain.submit(domain.legacy(), Step::Host(Box::new(|| {})));
                        domain.synchronize(&shared);
                    }
                }
                domain.close(&own);
            })
        })
        .collect();
    for thread in threads {
        thread.join().unwrap();
    }
    domain.synchronize_all();
    assert_eq!(total.load(SeqCst), 8 * 400 * 2);
}

#[test]
fn a_step_may_wait_for_another_queue() {
    let domain = domain();
    let queues: Vec<_> = (0..40).map(|_| domain.open(Role::NonBlocking, 0)).collect();
    // Each step blocks its thread until the next queue's has run; the last is pushed last.
    let mut ends = Vec::new();
    for queue in &queues {
        let (send, receive) = mpsc::channel::<()>();
        domain.submit(queue, device(move || _ = receive.recv()));
        ends.push(send);
    }
    let release = domain.open(Role::NonBlocking, 0);
    domain.submit(&release, device(move || drop(ends)));
    domain.synchronize_all();
}

#[test]
fn nothing_runs_after_a_failure_and_nobody_waits_for_ever() {
    let domain = domain();
    let queue = domain.open(Role::Blocking, 0);
    let ran = Arc::new(AtomicBool::new(false));
    domain.submit(&queue, Step::Device(Box::new(|| Err(Failure(700)))));
    let flag = ran.clone();
    domain.submit(&queue, device(move || flag.store(true, SeqCst)));
    let flag = ran.clone();
    domain.submit(
        &queue,
        Step::Host(Box::new(move || flag.store(true, SeqCst))),
    );
    let (send, receive) = mpsc::channel();
    domain.submit(
        &queue,
        Step::Callback(Box::new(move |failure| send.send(failure).unwrap())),
    );
    let marker = domain.record(&queue);
    marker.synchronize();
    domain.synchronize(domain.legacy());
    assert!(!ran.load(SeqCst));
    assert_eq!(receive.recv().unwrap(), Some(Failure(700)));
}

#[test]
fn a_panic_in_a_step_is_a_failure_and_the_queue_goes_on() {
    let fate = Arc::new(TestFate::default());
    let domain = Domain::new(fate.clone());
    let queue = domain.open(Role::NonBlocking, 0);
    domain.submit(
        &queue,
        Step::Host(Box::new(|| panic!("a host function's panic, as meant"))),
    );
    domain.submit(&queue, device(|| panic!("a device step's panic, as meant")));
    domain.record(&queue).synchronize();
    assert_eq!(fate.failure(), Some(Failure::PANICKED));
    assert!(!super::host::calls_forbidden());
}

#[test]
fn host_functions_run_on_the_engines_threads() {
    let domain = domain();
    let queue = domain.open(Role::NonBlocking, 0);
    let caller = std::thread::current().id();
    for _ in 0..100 {
        let (send, receive) = mpsc::channel();
        domain.submit(
            &queue,
            Step::Host(Box::new(move || {
                send.send((std::thread::current().id(), super::host::calls_forbidden()))
                    .unwrap();
            })),
        );
        domain.synchronize(&queue);
        let (thread, forbidden) = receive.recv().unwrap();
        assert!(thread != caller && forbidden);
    }
}

#[test]
fn a_brief_step_of_an_idle_queue_has_run_when_it_was_pushed() {
    let domain = domain();
    let queue = domain.open(Role::Blocking, 0);
    let own = std::thread::current().id();
    let ran = Arc::new(Mutex::new(None));
    let seen = ran.clone();
    domain.submit(
        &queue,
        brief(move || *seen.lock() = Some(std::thread::current().id())),
    );
    assert_eq!(*ran.lock(), Some(own));
    // Not while another step is before it: the caller would wait for that.
    let (open, gate) = std::sync::mpsc::channel::<()>();
    domain.submit(&queue, device(move || _ = gate.recv()));
    let seen = ran.clone();
    domain.submit(&queue, brief(move || *seen.lock() = None));
    assert_eq!(*ran.lock(), Some(own));
    drop(open);
    domain.synchronize_all();
    assert_eq!(*ran.lock(), None);
}

#[test]
fn work_runs_without_anyone_waiting() {
    let domain = domain();
    let queue = domain.open(Role::NonBlocking, 0);
    let (send, receive) = mpsc::channel();
    domain.submit(&queue, device(move || send.send(()).unwrap()));
    receive
        .recv_timeout(Duration::from_secs(20))
        .expect("the step runs by itself");
}

#[test]
fn a_closed_queue_still_runs_and_still_orders() {
    let domain = domain();
    let queue = domain.open(Role::Blocking, 0);
    let (send, receive) = mpsc::channel::<()>();
    let ran = Arc::new(AtomicBool::new(false));
    let flag = ran.clone();
    domain.submit(
        &queue,
        device(move || {
            let _ = receive.recv();
            flag.store(true, SeqCst);
        }),
    );
    domain.close(&queue);
    drop(queue);
    let seen = Arc::new(AtomicBool::new(false));
    let (ran_, seen_) = (ran.clone(), seen.clone());
    domain.submit(
        domain.legacy(),
        device(move || seen_.store(ran_.load(SeqCst), SeqCst)),
    );
    drop(send);
    domain.synchronize(domain.legacy());
    assert!(seen.load(SeqCst));
}

#[test]
fn times_of_markers_go_forward() {
    let domain = domain();
    let queue = domain.open(Role::NonBlocking, 0);
    let first = domain.record(&queue);
    domain.submit(
        &queue,
        device(|| std::thread::sleep(Duration::from_millis(5))),
    );
    let second = domain.record(&queue);
    second.synchronize();
    assert!(second.nanoseconds() - first.nanoseconds() >= 5_000_000);
}

#[test]
fn a_push_and_synchronize_is_quick() {
    let domain = domain();
    let queue = domain.open(Role::Blocking, 0);
    let mut best = Duration::MAX;
    for _ in 0..20 {
        let start = Instant::now();
        for _ in 0..100 {
            domain.submit(&queue, device(|| {}));
            domain.synchronize(&queue);
        }
        best = best.min(start.elapsed() / 100);
    }
    eprintln!("a step and its synchronization: {best:?}");
    assert!(best < Duration::from_micros(500));
}
