//! Requests that come while this process takes over from another, which may take as long as a server is
//! away. The handler serves some at once, such as pages that the kernel writes back before it forgets
//! them. The others are held, and interrupts end them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use tracing::error;

use super::super::device::Received;
use super::super::flusher::become_io_flusher;
use super::super::handler::{Early, Handler};
use super::super::intake::InHand;
use super::super::request::{Op, Request};
use super::{Reader, Shared};

/// How often the device is looked at.
const TURN: Duration = Duration::from_millis(1);

/// A request that is held.
struct Kept<'a> {
    bytes: Vec<u8>,
    in_hand: Option<InHand<'a>>,
}

/// Has the handler take over; then what was held is served, in the order in which it came.
pub(super) fn serve<H: Handler + ?Sized>(shared: &Arc<Shared<H>>) {
    let reader = Reader {
        shared: shared.clone(),
        device: shared.devices[0].clone(),
    };
    // With the last reader the mount is gone: it is not with this one.
    shared.running.fetch_add(2, Ordering::AcqRel);
    let is_over = AtomicBool::new(false);
    let kept = thread::scope(|scope| {
        let early = thread::Builder::new()
            .name("fuse-early".to_owned())
            .spawn_scoped(scope, || reader.serve_early(&is_over));
        shared.handler.take_over();
        is_over.store(true, Ordering::Release);
        match early.map(thread::ScopedJoinHandle::join) {
            Ok(Ok(kept)) => kept,
            Ok(Err(_)) => {
                error!("what the kernel asked during the takeover is lost");
                Vec::new()
            }
            Err(cause) => {
                error!("no thread for what the kernel asks during the takeover: {cause}");
                Vec::new()
            }
        }
    });
    for Kept { bytes, in_hand } in kept {
        reader.serve_held(&bytes);
        drop(in_hand);
    }
    drop(reader);
    shared.running.fetch_sub(1, Ordering::AcqRel);
}

impl<H: Handler + ?Sized> Reader<H> {
    fn serve_early(&self, is_over: &AtomicBool) -> Vec<Kept<'_>> {
        become_io_flusher();
        let (mut kept, mut buffer) = (Vec::new(), self.buffer());
        while !is_over.load(Ordering::Acquire) {
            let taken = self.shared.intake.take(|| self.device.receive(&mut buffer));
            match taken {
                Ok((Received::Request(size), in_hand)) => {
                    let bytes = &buffer[..size];
                    if self.meet(bytes) == Early::Held {
                        kept.push(Kept {
                            bytes: bytes.to_vec(),
                            in_hand,
                        });
                    }
                }
                Ok((Received::Missed, _)) => {}
                Ok((Received::Nothing, _)) => thread::sleep(TURN),
                // The readers meet it, too, and say so.
                Ok((Received::Gone, _)) | Err(_) => break,
            }
        }
        kept
    }

    /// Serves what needs not wait.
    fn meet(&self, bytes: &[u8]) -> Early {
        let request = match Request::parse(bytes, self.shared.granted.dialect()) {
            Ok(request) => request,
            Err(malformed) => {
                self.refuse(&malformed);
                return Early::Served;
            }
        };
        if is_message(&request.op) {
            return Early::Held;
        }
        match request.op {
            Op::Interrupt { .. } | Op::Init(_) => self.serve_now(request),
            _ if !self.shared.granted.knows(request.opcode) => self.serve_now(request),
            _ => {
                let replier = self.replier(&request);
                let met = |request| self.shared.handler.handle_early(request, replier);
                self.guard(request, met).unwrap_or(Early::Served)
            }
        }
    }

    fn serve_now(&self, request: Request<'_>) -> Early {
        self.guard(request, |request| self.dispatch(request));
        Early::Served
    }

    fn serve_held(&self, bytes: &[u8]) {
        let Ok(request) = Request::parse(bytes, self.shared.granted.dialect()) else {
            return;
        };
        match is_message(&request.op) {
            true => self.guard(request, |request| self.dispatch(request)),
            false => self.guard(request, |request| self.shared.handler.handle_held(request)),
        };
    }
}

/// Nobody waits for an answer to it.
fn is_message(op: &Op<'_>) -> bool {
    matches!(
        op,
        Op::Forget { .. } | Op::BatchForget(_) | Op::NotifyReply { .. } | Op::Destroy
    )
}
