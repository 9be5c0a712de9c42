//! Whose turn at the machine it is. Pure: one session after the other, each with a part of its oldest frame.

use std::collections::{HashMap, VecDeque};

use base::ClientId;

/// Frames that wait, of each session in the order in which they came.
///
/// A frame waits for at most one turn of each other session. A session that comes after it had a turn and
/// left is the exception to the order: it goes ahead of those that keep asking.
#[derive(Debug)]
pub(super) struct Turns<F> {
    sessions: HashMap<ClientId, VecDeque<F>>,
    /// Sessions that have come since their place in the round ended.
    fresh: VecDeque<ClientId>,
    /// The others. A session keeps its place for a round after its last frame, so that it is not fresh with
    /// each frame that it sends alone.
    round: VecDeque<ClientId>,
}

impl<F> Default for Turns<F> {
    fn default() -> Turns<F> {
        Turns {
            sessions: HashMap::new(),
            fresh: VecDeque::new(),
            round: VecDeque::new(),
        }
    }
}

impl<F> Turns<F> {
    /// A frame came.
    pub fn push(&mut self, client: ClientId, frame: F) {
        let fresh = &mut self.fresh;
        let frames = self.sessions.entry(client).or_insert_with(|| {
            fresh.push_back(client);
            VecDeque::new()
        });
        frames.push_back(frame);
    }

    /// The next turn: a session and its oldest frame. It is to be followed by [`Turns::had`].
    pub fn next(&mut self) -> Option<(ClientId, F)> {
        while let Some(client) = self.fresh.pop_front().or_else(|| self.round.pop_front()) {
            match self.sessions.get_mut(&client).and_then(VecDeque::pop_front) {
                Some(frame) => return Some((client, frame)),
                None => drop(self.sessions.remove(&client)),
            }
        }
        None
    }

    /// The session had its turn, and this is left of its frame.
    pub fn had(&mut self, client: ClientId, rest: Option<F>) {
        self.round.push_back(client);
        if let (Some(rest), Some(frames)) = (rest, self.sessions.get_mut(&client)) {
            frames.push_front(rest);
        }
    }

    /// The oldest frame of each session that has one, the next first.
    pub fn waiting(&self) -> impl Iterator<Item = &F> {
        let clients = self.fresh.iter().chain(&self.round);
        clients.filter_map(|client| self.sessions.get(client)?.front())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: ClientId = ClientId(1);
    const B: ClientId = ClientId(2);
    const C: ClientId = ClientId(3);

    /// Gives turns until nothing waits; each frame takes as many turns as it says.
    fn all(turns: &mut Turns<(char, u32)>) -> String {
        let mut had = String::new();
        while let Some((client, (name, left))) = turns.next() {
            had.push(name);
            turns.had(client, (left > 1).then(|| (name, left - 1)));
        }
        had
    }

    #[test]
    fn sessions_take_turns_and_each_keeps_its_order() {
        let mut turns = Turns::default();
        turns.push(A, ('a', 3));
        turns.push(A, ('b', 1));
        turns.push(B, ('c', 1));
        turns.push(C, ('d', 2));
        turns.push(B, ('e', 1));
        assert_eq!(all(&mut turns), "acdaedab");
        assert!(turns.waiting().next().is_none());
    }

    #[test]
    fn a_session_that_comes_waits_for_one_turn_of_each_other_at_most() {
        let mut turns = Turns::default();
        let others = (10..31).map(ClientId);
        for client in others.clone() {
            turns.push(client, ('x', 1000));
        }
        for _ in 0..50 {
            let (client, (name, left)) = turns.next().unwrap();
            turns.had(client, Some((name, left - 1)));
        }
        for _ in 0..5 {
            turns.push(A, ('a', 1));
            let mut waited = 0;
            loop {
                let (client, (name, left)) = turns.next().unwrap();
                turns.had(client, (left > 1).then(|| (name, left - 1)));
                if client == A {
                    break;
                }
                waited += 1;
            }
            assert!(waited <= others.clone().count(), "{waited}");
        }
    }

    #[test]
    fn a_session_with_one_frame_at_a_time_has_no_more_turns_than_others() {
        let mut turns = Turns::default();
        turns.push(A, ('a', 1));
        turns.push(B, ('b', 100));
        let mut had = String::new();
        for _ in 0..12 {
            let (client, (name, left)) = turns.next().unwrap();
            had.push(name);
            turns.had(client, (left > 1).then(|| (name, left - 1)));
            if client == A {
                turns.push(A, ('a', 1));
            }
        }
        assert_eq!(had, "abababababab");
    }

    #[test]
    fn a_session_that_was_away_for_a_round_goes_first_and_nothing_of_it_is_kept() {
        let mut turns = Turns::default();
        turns.push(A, ('a', 1));
        turns.push(B, ('b', 5));
        turns.push(C, ('c', 5));
        let turn = |turns: &mut Turns<(char, u32)>| {
            let (client, (name, left)) = turns.next().unwrap();
            turns.had(client, (left > 1).then(|| (name, left - 1)));
            name
        };
        let had: String = (0..5).map(|_| turn(&mut turns)).collect();
        assert_eq!(had, "abcbc");
        assert!(!turns.sessions.contains_key(&A));
        turns.push(A, ('a', 1));
        assert_eq!(turn(&mut turns), 'a');
    }
}
