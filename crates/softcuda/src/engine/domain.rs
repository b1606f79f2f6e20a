//! The queues of one context, and the rule of the legacy default stream: its work waits for what
//! blocking streams had before it, and what they get after it waits for it.

use std::sync::Arc;

use parking_lot::Mutex;

use super::pool::LANES;
use super::queue::{Marker, Queue, Role, Step};
use super::{Fate, queue};

/// The queues of one context.
pub(crate) struct Domain {
    legacy: Arc<Queue>,
    /// All others. One that was closed stays until its work has ended.
    members: Mutex<Vec<Member>>,
    fate: Arc<dyn Fate>,
}

struct Member {
    queue: Arc<Queue>,
    closed: bool,
}

impl Domain {
    /// A domain with the legacy queue alone.
    pub fn new(fate: Arc<dyn Fate>) -> Domain {
        Domain {
            legacy: Queue::new(Role::Legacy, LANES - 1, fate.clone()),
            members: Mutex::new(Vec::new()),
            fate,
        }
    }

    /// The legacy default stream's queue.
    pub fn legacy(&self) -> &Arc<Queue> {
        &self.legacy
    }

    /// A new queue. `lane` is its priority, 0 the highest.
    pub fn open(&self, role: Role, lane: usize) -> Arc<Queue> {
        let queue = queue::Queue::new(role, lane, self.fate.clone());
        let mut members = self.members.lock();
        members.retain(|member| !(member.closed && member.queue.is_idle()));
        members.push(Member {
            queue: queue.clone(),
            closed: false,
        });
        queue
    }

    /// Nothing more will be pushed into `queue`; what is in it still runs.
    pub fn close(&self, queue: &Arc<Queue>) {
        let mut members = self.members.lock();
        if let Some(member) = members
            .iter_mut()
            .find(|member| Arc::ptr_eq(&member.queue, queue))
        {
            member.closed = true;
        }
        members.retain(|member| !(member.closed && member.queue.is_idle()));
    }

    /// Pushes a step after what the rule of the legacy stream puts before it; gives its ticket.
    pub fn submit(&self, queue: &Arc<Queue>, step: Step) -> u64 {
        self.order(queue);
        queue.push(step)
    }

    /// A marker after all that is in `queue`, and what the rule of the legacy stream puts there.
    pub fn record(&self, queue: &Arc<Queue>) -> Arc<Marker> {
        self.order(queue);
        queue.record()
    }

    /// Waits for all that is in `queue` now; for the legacy queue also for all that is in blocking
    /// ones.
    pub fn synchronize(&self, queue: &Arc<Queue>) {
        let ticket = queue.last();
        if queue.role() == Role::Legacy {
            for other in self.blocking() {
                other.synchronize(other.last());
            }
        }
        queue.synchronize(ticket);
    }

    /// All that [`Domain::synchronize`] would wait for has ended.
    pub fn is_idle(&self, queue: &Arc<Queue>) -> bool {
        queue.is_idle()
            && (queue.role() != Role::Legacy || self.blocking().iter().all(|other| other.is_idle()))
    }

    /// Waits for all that is in any queue now.
    pub fn synchronize_all(&self) {
        let mut all: Vec<_> = self
            .members
            .lock()
            .iter()
            .map(|member| member.queue.clone())
            .collect();
        all.push(self.legacy.clone());
        let tickets: Vec<_> = all.iter().map(|queue| queue.last()).collect();
        for (queue, ticket) in all.iter().zip(tickets) {
            queue.synchronize(ticket);
        }
    }

    /// A marker after all that is in any queue now, as a list: one for each queue that has work.
    pub fn mark_all(&self) -> Vec<Arc<Marker>> {
        let members = self.members.lock();
        let all = members
            .iter()
            .map(|member| &member.queue)
            .chain([&self.legacy]);
        all.filter(|queue| !queue.is_idle())
            .map(Queue::mark)
            .collect()
    }

    fn order(&self, queue: &Arc<Queue>) {
        match queue.role() {
            Role::NonBlocking => {}
            Role::Blocking => {
                if !self.legacy.is_idle() {
                    queue.push(Step::Wait(self.legacy.mark()));
                }
            }
            Role::Legacy => {
                for other in self.blocking() {
                    if !other.is_idle() {
                        queue.push(Step::Wait(other.mark()));
                    }
                }
            }
        }
    }

    fn blocking(&self) -> Vec<Arc<Queue>> {
        let members = self.members.lock();
        let blocking = members
            .iter()
            .filter(|member| member.queue.role() == Role::Blocking);
        blocking.map(|member| member.queue.clone()).collect()
    }
}
