//! Requests that many tasks ask in the same moment, in few frames: after a restart something is asked about
//! every open file. A frame is answered when all in it are, so none of these may wait for another client.

use std::collections::{BTreeMap, VecDeque};
use std::future::Future;
use std::sync::{Arc, PoisonError};

use base::{FsError, TargetIndex};
use threads::{Mutex, MutexGuard};
use wire::{mdt, ost};

use crate::executor::{AT_ONCE, Oneshot, Sender, oneshot, spawn};

/// Requests in one frame.
const FRAME_MAX: usize = 256;
/// As many tasks as are worth their memory may ask something together.
pub(crate) const TOGETHER_MAX: usize = 4 * FRAME_MAX;

type Answer<A> = Result<A, FsError>;
/// The requests of a frame, and where their answers go.
type Frame<Q, A> = (Vec<Q>, Vec<Sender<Answer<A>>>);
type OfOst = Arc<Gathering<ost::Request, ost::Reply>>;

/// What is gathered for each target.
#[derive(Default)]
pub(crate) struct Gathered {
    pub mdt: Arc<Gathering<mdt::Request, mdt::Reply>>,
    osts: Mutex<BTreeMap<TargetIndex, OfOst>>,
}

impl Gathered {
    pub fn of_ost(&self, target: TargetIndex) -> OfOst {
        let mut osts = self.osts.lock().unwrap_or_else(PoisonError::into_inner);
        osts.entry(target).or_default().clone()
    }
}

/// Requests to one target.
pub(crate) struct Gathering<Q, A>(Mutex<State<Q, A>>);

struct State<Q, A> {
    waiting: VecDeque<(Q, Sender<Answer<A>>)>,
    /// A task will send them.
    is_begun: bool,
    /// Frames on their way; no more than [`AT_ONCE`].
    frames: usize,
}

impl<Q, A> Default for Gathering<Q, A> {
    fn default() -> Gathering<Q, A> {
        Gathering(Mutex::new(State {
            waiting: VecDeque::new(),
            is_begun: false,
            frames: 0,
        }))
    }
}

impl<Q: Send + 'static, A: Send + 'static> Gathering<Q, A> {
    fn lock(&self) -> MutexGuard<'_, State<Q, A>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks; by `send` if nobody does it yet. It begins when the task that asks first is through with
    /// what it does just now, as others do that have something to ask.
    pub fn ask<F>(
        self: &Arc<Self>,
        request: Q,
        send: impl Fn(Vec<Q>) -> F + Clone + Send + 'static,
    ) -> Oneshot<Answer<A>>
    where
        F: Future<Output = Vec<Answer<A>>> + Send + 'static,
    {
        let (sender, answer) = oneshot();
        let is_first = {
            let mut state = self.lock();
            state.waiting.push_back((request, sender));
            !std::mem::replace(&mut state.is_begun, true)
        };
        if is_first {
            let gathering = self.clone();
            spawn(async move { gathering.begin_frames(&send) });
        }
        answer
    }

    fn begin_frames<F>(self: &Arc<Self>, send: &(impl Fn(Vec<Q>) -> F + Clone + Send + 'static))
    where
        F: Future<Output = Vec<Answer<A>>> + Send + 'static,
    {
        self.lock().is_begun = false;
        while let Some((requests, senders)) = self.next_frame() {
            let (gathering, send) = (self.clone(), send.clone());
            spawn(async move {
                let answers = send(requests).await;
                gathering.lock().frames -= 1;
                let answered = senders.into_iter().zip(answers);
                answered.for_each(|(sender, answer)| sender.send(answer));
                gathering.begin_frames(&send);
            });
        }
    }

    fn next_frame(&self) -> Option<Frame<Q, A>> {
        let mut state = self.lock();
        if state.waiting.is_empty() || state.frames >= AT_ONCE {
            return None;
        }
        state.frames += 1;
        let count = state.waiting.len().min(FRAME_MAX);
        Some(state.waiting.drain(..count).unzip())
    }
}
