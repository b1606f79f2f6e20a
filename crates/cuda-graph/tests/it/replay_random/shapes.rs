//! Which shapes the sections of a call had, as far as its step can tell.
//!
//! The step notes what it recorded, and which bodies were called when. From that follow its
//! sections, but for loops and branches that the host may have driven although nothing in them
//! needed it: the number that it drove tells most of those.

use std::collections::HashSet;

use super::family::Sides;

/// What cannot change without another executable, of an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Key {
    Kernel {
        attributes: bool,
    },
    Memset,
    FillKernel,
    Copy(Sides),
    Empty,
    Host,
    Keep,
    Child {
        more: bool,
    },
    Foreign {
        more: bool,
    },
    While,
    DoWhile,
    If,
    IfElse,
    Switch,
    Fork,
    /// So many bodies or branches follow.
    Count(usize),
    Next,
    End,
}

/// What a step did.
#[derive(Clone, Copy, Debug)]
pub enum Event {
    Key(Key),
    Flow(Key, usize),
    Body(usize),
    BodyOver,
    /// Whether it fails because a graph cannot hold a section for the host in it.
    FlowOver {
        is_refused: bool,
    },
    /// A section for the host began.
    Outside,
    /// A section for the host found itself in a graph.
    Refused,
    /// The step fails.
    Fail,
}

/// The same with the events of bodies inside.
#[derive(Debug)]
enum Act {
    Key(Key),
    Flow(Key, usize, Vec<Run>),
    Outside,
    Refused,
    Fail,
}

/// A call of a body.
#[derive(Debug)]
struct Run {
    body: usize,
    acts: Vec<Act>,
}

impl Run {
    /// Whether a section for the host ended it, because it was recorded into a graph.
    fn is_refused(&self) -> bool {
        matches!(self.acts.last(), Some(Act::Refused))
    }
}

/// Reads acts up to the end of a body. After a panic, ends are missing.
fn acts(events: &mut impl Iterator<Item = Event>) -> Vec<Act> {
    let mut acts = Vec::new();
    while let Some(event) = events.next() {
        acts.push(match event {
            Event::Key(key) => Act::Key(key),
            Event::Flow(key, count) => match runs(events) {
                (runs, false) => Act::Flow(key, count, runs),
                (_, true) => Act::Refused,
            },
            Event::Outside => Act::Outside,
            Event::Refused => Act::Refused,
            Event::Fail => Act::Fail,
            Event::Body(_) | Event::FlowOver { .. } => unreachable!("no body is open"),
            Event::BodyOver => return acts,
        });
    }
    acts
}

/// Reads the calls of bodies up to the end of their loop or branch, and whether that was refused.
fn runs(events: &mut impl Iterator<Item = Event>) -> (Vec<Run>, bool) {
    let mut runs = Vec::new();
    loop {
        match events.next() {
            Some(Event::Body(body)) => {
                let acts = acts(events);
                runs.push(Run { body, acts });
            }
            Some(Event::FlowOver { is_refused }) => return (runs, is_refused),
            _ => return (runs, false),
        }
    }
}

/// The number of a section, and what it holds.
pub type Shape = (usize, Vec<Key>);

/// The sections of one call.
#[derive(Default)]
pub struct Sections {
    pub shapes: HashSet<Shape>,
    /// Whether all are known. Otherwise too many ways are open.
    pub are_known: bool,
    /// Whether something was launched before the step was over.
    pub some_ran: bool,
}

impl Sections {
    /// The sections of a step that did `events`, while the host drove `driven` parts.
    pub fn of(events: Vec<Event>, driven: u64) -> Sections {
        let acts = acts(&mut events.into_iter());
        let mut sections = Sections {
            are_known: true,
            ..Sections::default()
        };
        let mut chosen = Vec::new();
        let mut is_possible = false;
        for _ in 0..4096 {
            let mut walk = Walk {
                chosen: std::mem::take(&mut chosen),
                most: driven,
                ..Walk::default()
            };
            if walk.acts(&acts).is_ok() {
                walk.flush();
            }
            if walk.driven == driven {
                is_possible = true;
                sections.some_ran |= walk.flushed > usize::from(!walk.failed);
                sections.shapes.extend(walk.shapes);
            }
            // The next way: the last choice that was not to drive becomes one.
            walk.chosen.truncate(walk.asked);
            while walk.chosen.last() == Some(&true) {
                walk.chosen.pop();
            }
            match walk.chosen.last_mut() {
                Some(last) => *last = true,
                None => {
                    assert!(is_possible, "{driven} parts were driven: {acts:?}");
                    return sections;
                }
            }
            chosen = walk.chosen;
        }
        sections.are_known = false;
        sections
    }
}

/// The step failed.
struct Failed;

/// Goes through the acts of a step as a replay may have done.
#[derive(Default)]
struct Walk {
    section: usize,
    now: Vec<Key>,
    shapes: Vec<Shape>,
    driven: u64,
    /// How many are driven at most.
    most: u64,
    flushed: usize,
    failed: bool,
    /// What was chosen where both may be, and how often it was asked.
    chosen: Vec<bool>,
    asked: usize,
}

impl Walk {
    fn acts(&mut self, acts: &[Act]) -> Result<(), Failed> {
        acts.iter().try_for_each(|act| self.act(act))
    }

    fn act(&mut self, act: &Act) -> Result<(), Failed> {
        match act {
            Act::Key(key) => self.now.push(*key),
            Act::Outside => self.flush(),
            Act::Fail | Act::Refused => {
                self.failed = true;
                return Err(Failed);
            }
            Act::Flow(key, count, runs) => {
                let tried = runs.iter().rposition(Run::is_refused);
                if let Some(tried) = tried {
                    return self.drive(*key, &runs[tried + 1..]);
                }
                let once_each = runs.iter().map(|run| run.body).eq(0..*count);
                let is_driven = match once_each {
                    _ if *key == Key::Fork => self.choose(),
                    true => *count == 1 && self.choose(),
                    // After a failure, the rest is not there.
                    false => {
                        let is_start = runs.iter().enumerate().all(|(at, run)| at == run.body);
                        !is_start || runs.is_empty() || runs.len() > *count || self.choose()
                    }
                };
                if is_driven {
                    return self.drive(*key, runs);
                }
                self.hold(*key, *count, runs)?;
            }
        }
        Ok(())
    }

    /// A graph holds it.
    fn hold(&mut self, key: Key, count: usize, runs: &[Run]) -> Result<(), Failed> {
        self.now.extend([key, Key::Count(count)]);
        for (at, run) in runs.iter().enumerate() {
            if at > 0 {
                self.now.push(Key::Next);
            }
            for act in &run.acts {
                match act {
                    Act::Flow(key, count, runs) => self.hold(*key, *count, runs)?,
                    act => self.act(act)?,
                }
            }
        }
        self.now.push(Key::End);
        Ok(())
    }

    /// The host drives it.
    fn drive(&mut self, key: Key, runs: &[Run]) -> Result<(), Failed> {
        self.flush();
        self.driven += 1;
        if key == Key::Fork {
            return runs.iter().try_for_each(|run| self.acts(&run.acts));
        }
        let first = self.section;
        let mut last = first;
        for run in runs {
            self.section = first;
            self.acts(&run.acts)?;
            self.flush();
            last = last.max(self.section);
        }
        self.section = last;
        Ok(())
    }

    fn flush(&mut self) {
        let now = std::mem::take(&mut self.now);
        if !now.is_empty() {
            self.shapes.push((self.section, now));
        }
        self.flushed += 1;
        self.section += 1;
    }

    fn choose(&mut self) -> bool {
        if self.driven >= self.most {
            return false;
        }
        if self.asked == self.chosen.len() {
            self.chosen.push(false);
        }
        self.asked += 1;
        self.chosen[self.asked - 1]
    }
}
