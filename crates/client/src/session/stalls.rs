//! What a walk had to wait for: calls whose answer was not at hand when it was wanted.

use std::future::{Future, poll_fn};
use std::mem::replace;
use std::pin::pin;
use std::sync::atomic::AtomicU64;

use crate::session::stats::bump;

/// Does the call, and counts it once if it must wait: for a server, or for what is on its way.
pub(crate) async fn counted<T>(stalls: &AtomicU64, call: impl Future<Output = T>) -> T {
    let mut call = pin!(call);
    let mut has_waited = false;
    poll_fn(|context| {
        let polled = call.as_mut().poll(context);
        if polled.is_pending() && !replace(&mut has_waited, true) {
            bump(stalls);
        }
        polled
    })
    .await
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::Ordering;

    use super::*;
    use crate::executor::{oneshot, spawn};

    #[test]
    fn a_call_that_waits_counts_once_and_one_that_does_not_is_free() {
        let stalls = Arc::new(AtomicU64::new(0));
        let (first, told_first) = oneshot();
        let (second, told_second) = oneshot();
        let count = stalls.clone();
        spawn(async move {
            counted(&count, async {}).await;
            let twice = async { (told_first.await, told_second.await) };
            assert_eq!(counted(&count, twice).await, (Some(1), Some(2)));
            counted(&count, async {}).await;
        });
        assert_eq!(stalls.load(Ordering::Relaxed), 1);
        first.send(1);
        second.send(2);
        assert_eq!(stalls.load(Ordering::Relaxed), 1);
    }
}
