//! What all clients of a target have under way there: bytes that are kept until they are answered.

use std::collections::HashMap;

use base::ClientId;

/// Bytes kept for requests that are not answered yet, by client.
#[derive(Debug)]
pub(super) struct Unanswered {
    bytes_max: usize,
    bytes: usize,
    /// Those of clients that have any.
    of: HashMap<ClientId, usize>,
}

impl Unanswered {
    /// Room for so many bytes.
    pub fn new(bytes_max: usize) -> Unanswered {
        Unanswered {
            bytes_max,
            bytes: 0,
            of: HashMap::new(),
        }
    }

    /// There is room for `bytes` more of the client: for all, or within an equal share for each client that
    /// has any.
    pub fn has_room(&self, client: ClientId, bytes: usize) -> bool {
        let own = self.of.get(&client).copied().unwrap_or(0) + bytes;
        let clients = self.of.len() + usize::from(!self.of.contains_key(&client));
        self.bytes + bytes <= self.bytes_max || own <= self.bytes_max / clients
    }

    /// The client has so many bytes more.
    pub fn add(&mut self, client: ClientId, bytes: usize) {
        if bytes > 0 {
            *self.of.entry(client).or_default() += bytes;
            self.bytes += bytes;
        }
    }

    /// The client has so many bytes less, which were added before.
    pub fn remove(&mut self, client: ClientId, bytes: usize) {
        self.bytes -= bytes;
        if let Some(own) = self.of.get_mut(&client) {
            *own -= bytes;
            if *own == 0 {
                self.of.remove(&client);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn with_no_room_left_those_are_refused_that_have_most() {
        let mut unanswered = Unanswered::new(100);
        let [greedy, modest, small] = [1, 2, 3].map(ClientId);
        assert!(!unanswered.has_room(small, 101) && unanswered.has_room(greedy, 90));
        unanswered.add(greedy, 90);
        unanswered.add(modest, 10);
        assert!(!unanswered.has_room(greedy, 1));
        assert!(unanswered.has_room(modest, 40) && !unanswered.has_room(modest, 41));
        assert!(unanswered.has_room(small, 33) && !unanswered.has_room(small, 34));
        unanswered.remove(greedy, 90);
        unanswered.remove(modest, 10);
        assert_eq!((unanswered.bytes, unanswered.of.len()), (0, 0));
    }

    #[test]
    fn any_number_of_clients_has_little_more_than_the_bound() {
        let mut unanswered = Unanswered::new(1 << 20);
        for client in (0..1000).map(ClientId) {
            while unanswered.has_room(client, 64) {
                unanswered.add(client, 64);
            }
        }
        assert!(unanswered.bytes < 8 << 20, "{}", unanswered.bytes);
    }
}
