//! Serving while what another process left is put in order. Pages that were stored into, and that
//! the kernel writes back before it forgets them, come under the locks of that process, which go
//! then. All else waits.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use tracing::error;

use super::super::device::Received;
use super::super::flusher::become_io_flusher;
use super::super::handler::Handler;
use super::super::intake::InHand;
use super::super::request::{Op, Request};
use super::{Reader, Shared};

/// How often the device is looked at.
const TURN: Duration = Duration::from_millis(1);

/// A request that waits.
struct Kept<'a> {
    bytes: Vec<u8>,
    in_hand: Option<InHand<'a>>,
}

/// Has the handler take over; then what has waited is served, in the order in which it came.
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
            .spawn_scoped(scope, || reader.serve_writes_back(&is_over));
        shared.handler.take_over();
        is_over.store(true, Ordering::Release);
        match early.map(thread::ScopedJoinHandle::join) {
            Ok(Ok(kept)) => kept,
            Ok(Err(_)) => {
                error!("what the kernel asked during the takeover is lost");
                Vec::new()
            }
            Err(cause) => {
                error!("no thread for what the kernel writes back: {cause}");
                Vec::new()
            }
        }
    });
    for Kept { bytes, in_hand } in kept {
        reader.serve(&bytes);
        drop(in_hand);
    }
    drop(reader);
    shared.running.fetch_sub(1, Ordering::AcqRel);
}

impl<H: Handler + ?Sized> Reader<H> {
    fn serve_writes_back(&self, is_over: &AtomicBool) -> Vec<Kept<'_>> {
        become_io_flusher();
        let (mut kept, mut buffer) = (Vec::new(), self.buffer());
        while !is_over.load(Ordering::Acquire) {
            let taken = self.shared.intake.take(|| self.device.receive(&mut buffer));
            match taken {
                Ok((Received::Request(size), in_hand)) => {
                    let bytes = &buffer[..size];
                    match self.is_write_back(bytes) {
                        true => self.serve(bytes),
                        false => kept.push(Kept {
                            bytes: bytes.to_vec(),
                            in_hand,
                        }),
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

    fn is_write_back(&self, bytes: &[u8]) -> bool {
        let request = Request::parse(bytes, self.shared.granted.dialect());
        request.is_ok_and(|request| matches!(request.op, Op::Write(write) if write.from_cache))
    }

    fn serve(&self, bytes: &[u8]) {
        match Request::parse(bytes, self.shared.granted.dialect()) {
            Ok(request) => self.guard(request),
            Err(malformed) => self.refuse(&malformed),
        }
    }
}
