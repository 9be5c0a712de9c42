//! One answer for one waiter, as a future or by blocking.

use ::threads::Mutex;
use ::threads::Thread;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};

use base::Disrupted;

use crate::batch::ReplyBatch;
use crate::threads::lock;

/// What a call comes to.
pub type CallResult = Result<ReplyBatch, Disrupted>;

#[derive(Default)]
struct State {
    result: Option<CallResult>,
    waker: Option<Waker>,
}

/// The answer to a call, sooner or later. Dropping it does not take the request back.
#[must_use = "a call's answer is in its future"]
pub struct CallFuture(Arc<Mutex<State>>);

/// Fills a [`CallFuture`].
pub(crate) struct Answerer(Arc<Mutex<State>>);

/// A call's two ends.
pub(crate) fn call() -> (Answerer, CallFuture) {
    let state = Arc::<Mutex<State>>::default();
    (Answerer(state.clone()), CallFuture(state))
}

impl Answerer {
    /// Stores the answer and wakes the thread that waits for it.
    pub(crate) fn answer(self, result: CallResult) {
        let waker = {
            let mut state = lock(&self.0);
            state.result = Some(result);
            state.waker.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl Future for CallFuture {
    type Output = CallResult;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<CallResult> {
        let mut state = lock(&self.0);
        match state.result.take() {
            Some(result) => Poll::Ready(result),
            None => {
                state.waker = Some(context.waker().clone());
                Poll::Pending
            }
        }
    }
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

impl CallFuture {
    /// Blocks until the answer is there. Not on a thread of this crate: it may be the one that
    /// would bring it.
    pub fn wait(mut self) -> CallResult {
        let waker = Waker::from(Arc::new(Unpark(::threads::current())));
        let mut context = Context::from_waker(&waker);
        loop {
            match Pin::new(&mut self).poll(&mut context) {
                Poll::Ready(result) => return result,
                Poll::Pending => ::threads::park(),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_before_or_after_the_wait() {
        let (answerer, future) = call();
        answerer.answer(Err(Disrupted::Closed));
        assert_eq!(future.wait(), Err(Disrupted::Closed));

        let (answerer, future) = call();
        let waiter = ::threads::spawn(|| future.wait());
        answerer.answer(Ok(ReplyBatch::default()));
        assert_eq!(waiter.join().unwrap(), Ok(ReplyBatch::default()));
    }

    #[test]
    fn a_dropped_future_is_no_matter() {
        let (answerer, future) = call();
        drop(future);
        answerer.answer(Err(Disrupted::Timeout));
    }
}
