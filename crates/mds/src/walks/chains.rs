//! Requests for stretches of one walk that follow each other, known in memory only.

use std::collections::VecDeque;

use base::ClientId;
use base::limits::{WALK_DEPTH_MAX, WALKS_PER_CLIENT_MAX};
use wire::mdt::{WalkLevel, WalkOrder};

use crate::event::Call;

/// A client's name for one of its walks; the client is part of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Chain {
    pub client: ClientId,
    pub walk: u64,
}

/// Where a walk goes on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Cursor {
    /// Outermost first; none at the end.
    pub levels: Vec<WalkLevel>,
    pub order: WalkOrder,
}

impl Cursor {
    /// It can be gone on from.
    pub fn is_sound(&self) -> bool {
        let beyond = |level: &WalkLevel| level.cookie >= 1 << 63;
        let levels_max = match self.order {
            WalkOrder::Breadth { depth, .. } => usize::from(depth) + 1,
            WalkOrder::Cookie | WalkOrder::Name => WALK_DEPTH_MAX,
        };
        let fits = self.levels.len() <= levels_max && levels_max <= WALK_DEPTH_MAX;
        fits && !self.levels.iter().any(beyond)
    }
}

/// What is asked of a walk.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ask {
    pub call: Call,
    pub chain: Chain,
    pub bytes_max: u32,
}

/// How walks go on from one request to the next. The client asks for the next stretch before the last one is
/// answered, when neither side knows yet where that ends. A request that follows a stretch which is not known
/// any more is refused, and the client says itself where to go on.
#[derive(Debug, Default)]
pub(crate) struct Chains {
    /// They wait for the answer before them, in the order they came.
    followers: VecDeque<Ask>,
    /// Where the last answers of walks ended, the newest last.
    ends: VecDeque<(Chain, Cursor)>,
}

impl Chains {
    pub fn follow(&mut self, ask: Ask) {
        self.followers.push_back(ask);
    }

    /// Requests of the client that wait.
    pub fn waiting(&self, client: ClientId) -> usize {
        let of_client = |ask: &&Ask| ask.chain.client == client;
        self.followers.iter().filter(of_client).count()
    }

    /// An answer of the walk ended there: the request that goes on from there, if it is here.
    pub fn ended(&mut self, chain: Chain, at: &Cursor) -> Option<Ask> {
        let next = self.followers.iter().position(|ask| ask.chain == chain);
        if let Some(next) = next {
            return self.followers.remove(next);
        }
        self.forget(chain);
        let of_client = |(other, _): &(Chain, _)| other.client == chain.client;
        if self.ends.iter().filter(|end| of_client(end)).count() >= WALKS_PER_CLIENT_MAX
            && let Some(oldest) = self.ends.iter().position(of_client)
        {
            self.ends.remove(oldest);
        }
        self.ends.push_back((chain, at.clone()));
        None
    }

    /// Where the last answer of the walk ended.
    pub fn end_of(&self, chain: Chain) -> Option<Cursor> {
        let end = self.ends.iter().find(|(other, _)| *other == chain)?;
        Some(end.1.clone())
    }

    /// The walk is not gone on with: the requests that waited to.
    pub fn broken(&mut self, chain: Chain) -> VecDeque<Ask> {
        self.forget(chain);
        let followers = std::mem::take(&mut self.followers);
        let (broken, others) = followers.into_iter().partition(|ask| ask.chain == chain);
        self.followers = others;
        broken
    }

    fn forget(&mut self, chain: Chain) {
        self.ends.retain(|(other, _)| *other != chain);
    }

    pub fn end_client(&mut self, client: ClientId) {
        self.followers.retain(|ask| ask.chain.client != client);
        self.ends.retain(|(chain, _)| chain.client != client);
    }

    /// The requests that end here unanswered.
    pub fn end_all(&mut self) -> impl Iterator<Item = Call> + use<> {
        self.ends.clear();
        let followers = std::mem::take(&mut self.followers);
        followers.into_iter().map(|ask| ask.call)
    }
}
