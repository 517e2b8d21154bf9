//! Orders of the collectors' operator: pause, change nothing, resume after a trip, and change the bounds of the
//! concurrency limit.

use gc_controller::concurrency::ConcurrencyOptions;

use super::World;
use crate::process::Orders;
use crate::random::Random;

impl World<'_> {
    /// Performs an action of the operator.
    pub(super) fn operate(&mut self, salt: u64) {
        let mut random = Random::new(salt);
        match random.weighted(&[3, 3, 3, 3, 2]) {
            0 => self.order(Orders { is_paused: true, ..self.orders }, "collectors paused"),
            1 => self.order(Orders { is_dry_run: true, ..self.orders }, "dry runs"),
            2 => self.end_orders(),
            3 => drop(self.resume_breaker()),
            _ => {
                // The maximum stays the same: the oracle depends on it.
                let initial = random.pick(&[1, 2, 32]);
                let concurrency =
                    ConcurrencyOptions { initial, smallest: random.pick(&[1, 2]), ..self.story.concurrency };
                for collector in &mut self.collectors {
                    let concurrency = collector.saboteur().concurrency(concurrency);
                    collector.set_concurrency(concurrency);
                }
            }
        }
    }

    /// Withdraws all orders.
    pub(super) fn end_orders(&mut self) {
        self.order(Orders::default(), "orders ended");
    }

    fn order(&mut self, orders: Orders, what: &'static str) {
        if self.orders == orders {
            return;
        }
        self.orders = orders;
        self.report.note_happened(what);
        self.note(|| format!("the operator's orders: {orders:?}"));
        for collector in &mut self.collectors {
            collector.process.orders = orders;
            collector.orders_changed();
        }
    }

    /// Resumes everything that breakers have stopped. Returns false if there is nothing.
    pub(super) fn resume_breaker(&mut self) -> bool {
        let mut any = false;
        for collector in &mut self.collectors {
            if collector.process.resume() > 0 {
                any = true;
                self.restraints.resumed(collector.number, collector.clocks.moment_at(self.now));
                collector.orders_changed();
            }
        }
        if any {
            self.report.note_happened("breakers resumed");
            self.note(|| "the operator resumes what the breaker has stopped".to_owned());
        }
        any
    }
}
