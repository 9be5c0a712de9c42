//! Operations of the server: they wait for all they need, run, and let go. An operation enters every queue it
//! needs in one step. So each queue is in the order in which the operations began, nobody waits for a later
//! one, and operations cannot deadlock; and the callbacks for all its needs go out together.

use base::ClientId;

use super::LockTable;
use super::message::{Glimpsed, Output, Want};
use super::records::{Operation, Stage};
use super::resource::{Extra, Party, Waiter};
use crate::lock::{Cover, OpId, ResourceId};
use crate::mode::Mode;

impl LockTable {
    /// An operation declares what it needs.
    pub(super) fn begin(&mut self, op: OpId, client: Option<ClientId>, mut wants: Vec<Want>) {
        let senseless = |want: &Want| matches!(want, Want::Lock { cover, .. } if cover.is_empty());
        let full = self.waiting_count() >= self.limits.waiting;
        if full || self.operations.contains_key(&op) || wants.iter().any(senseless) {
            self.out.push(Output::OpRefused { op });
            return;
        }
        wants.sort_unstable();
        wants.dedup();
        let operation = Operation {
            client,
            wants: wants.clone(),
            stage: Stage::Acquiring,
            missing: 0,
            unanswered: 0,
            unglimpsed: 0,
            glimpses: Vec::new(),
            busy: false,
            announced: false,
        };
        self.operations.insert(op, operation);
        self.acquiring += 1;
        let (mut missing, mut unanswered) = (0, 0);
        for want in wants {
            match want {
                Want::Lock {
                    resource,
                    mode,
                    cover,
                } => {
                    missing += usize::from(!self.want_lock(op, client, resource, mode, cover));
                }
                Want::Name {
                    resource,
                    hash,
                    mode,
                } => {
                    missing += usize::from(!self.names.acquire((resource, hash), op, mode));
                }
                Want::Withdraw {
                    resource,
                    bits,
                    key,
                } => {
                    unanswered += self.withdraw(op, client, resource, bits, key);
                }
                Want::Glimpse { .. } | Want::GlimpseExtent { .. } | Want::Tell { .. } => {}
            }
        }
        if let Some(operation) = self.operations.get_mut(&op) {
            operation.missing = missing;
            operation.unanswered = unanswered;
        }
        if let Some(client) = client {
            self.waiting_ops.insert((client, op));
        }
        self.next_stage(op);
    }

    /// True if the lock is held at once.
    fn want_lock(
        &mut self,
        op: OpId,
        client: Option<ClientId>,
        resource: ResourceId,
        mode: Mode,
        cover: Cover,
    ) -> bool {
        let party = Party::Operation { op, client };
        let waiter = Waiter {
            party,
            mode,
            cover,
            served: false,
        };
        let free = !self.must_wait(resource, &waiter);
        if free {
            self.occupy(resource, op, mode, cover);
        } else {
            self.wait(resource, waiter);
        }
        free
    }

    /// One more lock or name is held.
    pub(super) fn op_acquired(&mut self, op: OpId) {
        if let Some(operation) = self.operations.get_mut(&op) {
            operation.missing -= 1;
            self.progressed.push(op);
        }
    }

    /// One more withdrawal or revocation is answered.
    pub(super) fn op_answered(&mut self, op: OpId) {
        if let Some(operation) = self.operations.get_mut(&op) {
            operation.unanswered -= 1;
            self.progressed.push(op);
        }
    }

    /// One more glimpse is answered, or its holder let go.
    pub(super) fn op_glimpsed(&mut self, op: OpId, answer: Option<Glimpsed>) {
        if let Some(operation) = self.operations.get_mut(&op) {
            operation.unglimpsed -= 1;
            operation.glimpses.extend(answer);
            self.progressed.push(op);
        }
    }

    /// Moves the operation on if what its stage waits for is there.
    pub(super) fn next_stage(&mut self, op: OpId) {
        let Some(operation) = self.operations.get_mut(&op) else {
            return;
        };
        if operation.stage == Stage::Acquiring
            && operation.missing == 0
            && operation.unanswered == 0
        {
            operation.stage = Stage::Glimpsing;
            self.send_glimpses(op);
        }
        let Some(operation) = self.operations.get_mut(&op) else {
            return;
        };
        if operation.stage == Stage::Glimpsing && operation.unglimpsed == 0 {
            operation.stage = Stage::Running;
            let glimpses = std::mem::take(&mut operation.glimpses);
            let busy = operation.busy;
            self.acquiring -= 1;
            if let Some(client) = operation.client {
                self.waiting_ops.remove(&(client, op));
            }
            self.out.push(Output::Ready { op, glimpses, busy });
        }
    }

    /// The operation's changes are made: gives the version that its reply carries. State of its
    /// entries read under an older version is old. Asked twice, it answers anew.
    pub fn announce(&mut self, op: OpId) -> u64 {
        if let Some(operation) = self.operations.get_mut(&op) {
            operation.announced = true;
            self.version += 1;
        }
        self.version
    }

    /// The operation lets go of everything, whatever its stage.
    pub(super) fn finish(&mut self, op: OpId) {
        let Some(operation) = self.operations.remove(&op) else {
            return;
        };
        if operation.stage != Stage::Running {
            self.acquiring -= 1;
        }
        if let Some(client) = operation.client {
            self.waiting_ops.remove(&(client, op));
        }
        if operation.withdraws() && !operation.announced {
            self.version += 1;
        }
        for want in operation.wants {
            match want {
                Want::Lock { resource, .. } | Want::Withdraw { resource, .. } => {
                    self.leave(resource, op);
                }
                Want::Name { resource, hash, .. } => {
                    for next in self.names.release((resource, hash), op) {
                        self.op_acquired(next);
                    }
                }
                Want::Glimpse { .. } | Want::GlimpseExtent { .. } | Want::Tell { .. } => {}
            }
        }
    }

    fn leave(&mut self, resource: ResourceId, op: OpId) {
        if let Some(extra) = self.extra_mut(resource) {
            let Extra {
                running,
                waiting,
                inflight,
                ..
            } = extra;
            running.retain(|held| held.op != op);
            waiting.retain(|waiter| waiter.party.op() != Some(op));
            inflight.retain(|withdrawal| withdrawal.op != op);
            self.touched.push(resource);
        }
    }
}
