//! Quiescence: the end of everything under way, and the state that queues leave to the next process.

use ringroad_port::port_queue::{HandOver, Upgrade};

use super::Engine;
use crate::exchange::{Inbox, is_consumed, positions};
use crate::forwarding::Forwarding;

impl Engine {
    /// Forwards the frames received before. Returns whether none of them remains: every frame was delivered, dropped by
    /// cause or handed to another worker, which has copied it, and every queue has all its slots back. With `patient`,
    /// devices may still send the slots that programs have lent them, and drivers may finish their work beside the
    /// worker; without, these slots count as back.
    pub fn quiesce(&mut self, patient: bool) -> bool {
        self.receive_handoffs(u64::MAX);
        let mut queue_indexes = 0..self.queues.len() as u32;
        for queue_index in queue_indexes.clone() {
            if self.holds_batch(queue_index) {
                self.serve(queue_index, u64::MAX);
            }
            match self.queues.get(queue_index as usize) {
                Some(Some(queue)) if !queue.pending.is_empty() => {
                    let forwarding = if patient { queue.forwarding } else { Forwarding::Hold };
                    self.settle(queue_index, forwarding);
                }
                _ => {}
            }
            self.flush_source(queue_index);
        }
        let mut is_quiet = true;
        if patient {
            for queue in self.queues.iter_mut().flatten().filter(|queue| queue.pending.is_empty()) {
                is_quiet &= queue.port.upgrade().is_none_or(Upgrade::prepare);
            }
        }
        is_quiet
            && !self.inboxes.iter().any(Inbox::has_waiting)
            && is_consumed(&positions(&self.outboxes), &self.outboxes)
            && queue_indexes.all(|queue_index| !self.has_borrowed(queue_index))
    }

    /// State that the queue at `queue_index` leaves to the process that serves its port next
    /// ([`Upgrade::hand_over`]), once the engine has quiesced.
    pub fn hand_over(&mut self, queue_index: u32) -> Option<HandOver> {
        let queue = self.queues.get_mut(queue_index as usize)?.as_mut()?;
        queue.count_missed();
        queue.port.upgrade()?.hand_over()
    }
}
