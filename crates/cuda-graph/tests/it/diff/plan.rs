//! Graphs as random values, and random edits of them.

/// Numbers from a seed.
pub struct Dice {
    pub state: u64,
    /// Each node waits for the one before, so that runs come to the same.
    pub in_a_row: bool,
}

impl Dice {
    pub fn below(&mut self, end: usize) -> usize {
        self.state = self
            .state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        let mixed = (self.state ^ (self.state >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
        ((mixed >> 33) as usize) % end.max(1)
    }

    pub fn chance(&mut self, of: usize) -> bool {
        self.below(of) == 0
    }
}

/// What a node does.
#[derive(Clone, Debug, PartialEq)]
pub enum Does {
    Store(usize, u32),
    Add(usize, usize),
    Bump {
        to: usize,
        n: u32,
        threads: u32,
        cooperative: bool,
        priority: i32,
    },
    Fill(usize, u32, usize),
    FillByte(usize, u8),
    Rows {
        to: usize,
        value: u32,
        width: usize,
        height: usize,
    },
    Copy(usize, usize, usize),
    CopyRows(usize, usize, usize),
    FromHost(usize),
    ToHost(usize),
    Empty,
    Host(usize),
    Record(usize),
    Wait(usize),
    Memory(usize),
    Batch(usize, u32, bool),
    Child(Plan),
    If(Plan),
    IfElse(Plan, Plan),
    While(Plan),
}

/// A graph: its nodes with what they wait for, and edits of its edges and nodes afterwards.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plan {
    pub nodes: Vec<(Does, Vec<usize>)>,
    pub edits: Vec<Edit>,
    pub cloned: bool,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Edit {
    AddEdge(usize, usize),
    RemoveEdge(usize, usize),
    Destroy(usize),
    AddNode(usize),
}

/// Where a graph is: what it may hold.
#[derive(Clone, Copy, PartialEq)]
pub enum Place {
    Root,
    Child,
    Body,
}

fn does(dice: &mut Dice, place: Place, depth: usize) -> Does {
    let buffer = dice.below(3);
    let value = dice.below(3) as u32;
    let simple = |dice: &mut Dice| match dice.below(9) {
        0 | 1 => Does::Store(buffer, value),
        2 => Does::Add(buffer, dice.below(3)),
        3 => Does::Bump {
            to: buffer,
            n: value,
            threads: 1 + dice.below(2) as u32,
            cooperative: dice.chance(8),
            priority: -(dice.below(4) as i32 / 3),
        },
        4 => Does::Fill(buffer, value, 1 + dice.below(3)),
        5 => Does::FillByte(buffer, value as u8),
        6 => Does::Rows {
            to: buffer,
            value,
            width: 1 + dice.below(2),
            height: 1 + dice.below(2),
        },
        7 => Does::Copy(buffer, dice.below(3), 1 + dice.below(3)),
        _ => Does::CopyRows(buffer, dice.below(3), 1 + dice.below(2)),
    };
    if place == Place::Body || dice.chance(2) {
        if depth > 0 && dice.chance(4) {
            return match (place, dice.below(2)) {
                (Place::Child, _) => Does::Empty,
                (_, 0) => Does::If(plan(dice, Place::Body, depth - 1)),
                _ => Does::Empty,
            };
        }
        return simple(dice);
    }
    match dice.below(15) {
        11 if place == Place::Root => Does::Memory(64 * (1 + dice.below(2))),
        12 | 13 => Does::Batch(buffer, value, dice.chance(2)),
        0 => Does::Empty,
        1 => Does::Host(dice.below(3)),
        2 => Does::Record(dice.below(2)),
        3 => Does::Wait(dice.below(2)),
        4 => Does::FromHost(buffer),
        5 => Does::ToHost(buffer),
        6 | 7 if depth > 0 => Does::Child(plan(dice, Place::Child, depth - 1)),
        8 if depth > 0 && place == Place::Root => Does::If(plan(dice, Place::Body, depth - 1)),
        9 if depth > 0 && place == Place::Root => Does::IfElse(
            plan(dice, Place::Body, depth - 1),
            plan(dice, Place::Body, 0),
        ),
        10 if depth > 0 && place == Place::Root => Does::While(plan(dice, Place::Body, 0)),
        _ => simple(dice),
    }
}

fn waits(dice: &mut Dice, count: usize) -> Vec<usize> {
    if dice.in_a_row {
        return count.checked_sub(1).into_iter().collect();
    }
    let mut waits = Vec::new();
    for _ in 0..dice.below(4) {
        let from = dice.below(count);
        if from < count && !waits.contains(&from) {
            waits.push(from);
        }
    }
    waits
}

pub fn plan(dice: &mut Dice, place: Place, depth: usize) -> Plan {
    let mut plan = Plan::default();
    for at in 0..dice.below(6) {
        let waits = waits(dice, at);
        plan.nodes.push((does(dice, place, depth), waits));
    }
    if !dice.in_a_row && dice.chance(3) {
        edit(dice, &mut plan);
    }
    plan.cloned = place == Place::Root && dice.chance(4);
    plan
}

fn edit(dice: &mut Dice, plan: &mut Plan) {
    let count = plan.nodes.len();
    for _ in 0..=dice.below(3) {
        let (a, b) = (dice.below(count), dice.below(count));
        let (from, to) = (a.min(b), a.max(b));
        plan.edits.push(match dice.below(6) {
            0 => Edit::Destroy(a),
            1 => Edit::AddNode(a),
            2 | 3 => Edit::AddEdge(from, to),
            _ => Edit::RemoveEdge(from, to),
        });
        if let Some(&Edit::AddEdge(from, to)) = plan.edits.last()
            && dice.chance(2)
        {
            plan.edits.push(Edit::RemoveEdge(from, to));
        }
    }
}

/// Changes something.
pub fn mutate(dice: &mut Dice, plan: &mut Plan, place: Place, depth: usize) {
    let count = plan.nodes.len();
    let at = dice.below(count);
    match dice.below(14) {
        0 => {
            let waits = waits(dice, count);
            plan.nodes.push((does(dice, place, depth), waits));
        }
        1 if count > 0 => {
            plan.nodes.remove(at);
            for (_, waits) in &mut plan.nodes {
                waits.retain(|&from| from != at);
                waits
                    .iter_mut()
                    .for_each(|from| *from -= usize::from(*from > at));
            }
        }
        2 if count > 0 => plan.nodes[at].1 = waits(dice, at),
        3 if count > 0 => plan.nodes[at].1.reverse(),
        4 => edit(dice, plan),
        5 => plan.edits.clear(),
        6 => plan.cloned = place == Place::Root && !plan.cloned,
        7 if count > 0 => plan.nodes[at].0 = does(dice, place, depth),
        8 if at + 1 < count && !plan.nodes[at + 1].1.contains(&at) => {
            plan.nodes.swap(at, at + 1);
            for (_, waits) in &mut plan.nodes[at + 2..] {
                for from in waits {
                    *from = match *from {
                        from if from == at => at + 1,
                        from if from == at + 1 => at,
                        from => from,
                    };
                }
            }
        }
        _ if count > 0 => match &mut plan.nodes[at].0 {
            Does::Store(_, value) | Does::Fill(_, value, _) => *value = dice.below(3) as u32,
            Does::Add(to, from) | Does::Copy(to, from, _) | Does::CopyRows(to, from, _) => {
                (*to, *from) = (dice.below(3), dice.below(3));
            }
            Does::Bump {
                threads,
                cooperative,
                priority,
                ..
            } => match dice.below(3) {
                0 => *threads = 1 + dice.below(2) as u32,
                1 => *cooperative = !*cooperative,
                _ => *priority = -1 - *priority,
            },
            Does::FillByte(_, value) => *value = dice.below(3) as u8,
            Does::Rows {
                value,
                width,
                height,
                ..
            } => match dice.below(3) {
                0 => *value = dice.below(3) as u32,
                1 => *width = 1 + dice.below(2),
                _ => *height = 1 + dice.below(2),
            },
            Does::FromHost(to) => *to = dice.below(3),
            Does::ToHost(from) => *from = dice.below(3),
            Does::Host(which) => *which = dice.below(3),
            Does::Record(event) | Does::Wait(event) => *event = dice.below(2),
            Does::Child(plan) => mutate(dice, plan, Place::Child, 0),
            Does::If(plan) | Does::While(plan) | Does::IfElse(plan, _) => {
                mutate(dice, plan, Place::Body, 0);
            }
            Does::Memory(bytes) => *bytes = 64 * (1 + dice.below(2)),
            Does::Batch(_, value, twice) => match dice.below(2) {
                0 => *value += 1,
                _ => *twice = !*twice,
            },
            Does::Empty => {}
        },
        _ => {}
    }
}

impl Plan {
    /// Whether its nodes run one after the other, and it ends.
    pub fn is_in_a_row(&self) -> bool {
        let follows = |(at, (does, waits)): (usize, &(Does, Vec<usize>))| {
            let inside = match does {
                Does::Child(plan) | Does::If(plan) => plan.is_in_a_row(),
                Does::IfElse(plan, other) => plan.is_in_a_row() && other.is_in_a_row(),
                // Launches refuse batches on memory of a pool, and what may not be freed.
                Does::Memory(_) | Does::Batch(..) => false,
                _ => true,
            };
            inside && waits.iter().copied().eq(at.checked_sub(1))
        };
        self.edits.is_empty() && self.nodes.iter().enumerate().all(follows)
    }
}
