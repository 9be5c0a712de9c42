//! What this mount counts. Names are Lustre's where it has them.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use threads::Mutex;

use serde::Serialize;

/// What is kept in memory for a server that may die.
#[derive(Debug, Clone, Copy)]
pub struct Kept {
    /// Requests to the MDT, and their bytes.
    pub replay: (usize, usize),
    /// Bytes of files that their OST does not have.
    pub unsent_bytes: u64,
    /// Bytes of files that their OST may yet lose.
    pub undurable_bytes: u64,
}

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident),* $(,)?) => {
        /// The counters.
        #[derive(Debug, Default)]
        pub struct Stats {
            $($(#[$doc])* pub $name: AtomicU64,)*
            requests: Mutex<BTreeMap<&'static str, u64>>,
        }

        /// The counters at one moment.
        #[derive(Debug, Default, Clone, Serialize, serde::Deserialize)]
        pub struct Snapshot {
            $($(#[$doc])* pub $name: u64,)*
            /// Request frames sent to all targets, sub-requests of a frame counted once.
            pub rpcs_sent: u64,
            /// Requests to the MDT that are kept until what they did is durable, now.
            pub replay_frames: u64,
            /// Bytes of these and of their answers.
            pub replay_bytes: u64,
            /// Bytes that are written and that their OST does not have, now.
            pub unsent_bytes: u64,
            /// Bytes that their OST has and may yet lose, which are kept, now.
            pub undurable_bytes: u64,
            /// Requests sent by kind; those of one frame each count.
            pub requests: BTreeMap<String, u64>,
        }

        impl Stats {
            /// All of them now.
            pub fn snapshot(&self, rpcs_sent: u64, kept: Kept) -> Snapshot {
                let requests = self.requests.lock().unwrap_or_else(|p| p.into_inner());
                Snapshot {
                    $($name: self.$name.load(Ordering::Relaxed),)*
                    rpcs_sent,
                    replay_frames: kept.replay.0 as u64,
                    replay_bytes: kept.replay.1 as u64,
                    unsent_bytes: kept.unsent_bytes,
                    undurable_bytes: kept.undurable_bytes,
                    requests: requests.iter().map(|(k, v)| (k.to_string(), *v)).collect(),
                }
            }

            /// Sets all to zero.
            pub fn clear(&self) {
                $(self.$name.store(0, Ordering::Relaxed);)*
                self.requests.lock().unwrap_or_else(|p| p.into_inner()).clear();
            }
        }
    };
}

counters! {
    /// Writes that the memory for the next process had no room for, sent before they were answered.
    unremembered,
    /// Lookups asked by the kernel or a tool.
    lookup,
    /// Of these answered from the cache.
    lookup_hit,
    /// Attribute questions.
    getattr,
    /// Of these answered from the cache.
    getattr_hit,
    /// Directory listings asked for (one for each kernel buffer).
    readdir,
    /// Of these answered from the cache.
    readdir_hit,
    /// Times a walk stood still: lookups, attribute questions and listings that had to wait for a
    /// server, or for what was on its way.
    walk_stalls,
    /// Opens.
    open,
    /// Of these without asking the MDT.
    open_hit,
    /// Files made.
    create,
    /// Names removed.
    unlink,
    /// Names moved.
    rename,
    /// Attribute changes.
    setattr,
    /// Read calls.
    read,
    /// Of these answered from the cache.
    read_hit,
    /// Bytes read.
    read_bytes,
    /// Write calls.
    write,
    /// Bytes written.
    write_bytes,
    /// Blocking callbacks answered.
    blocking_callbacks,
    /// Times that another mount made a file longer that is open here.
    growth_heard,
    /// Single entries of leases withdrawn.
    withdrawals,
    /// Glimpse callbacks answered.
    glimpses,
    /// statahead: directories walked with it.
    statahead_total,
    /// statahead: walks given up because guesses were wrong.
    statahead_wrong,
    /// statahead: entries fetched ahead.
    statahead_entries,
    /// statahead: batches sent.
    statahead_batches,
    /// statahead: entries fetched ahead and then asked for.
    hit_total,
    /// statahead: entries asked for that were not fetched ahead.
    miss_total,
    /// statahead: sequences of numbered names that were fetched ahead.
    statahead_fname_total,
    /// statahead: hints of programs that something was fetched for.
    statahead_advise_total,
    /// statahead: names fetched for such hints and then asked for.
    statahead_advise_hit,
    /// statahead: requests for stretches of trees.
    statahead_tree_walks,
    /// statahead: directories fetched ahead of walks of trees.
    statahead_tree_total,
    /// statahead: of these then read.
    statahead_tree_hit,
    /// statahead: small files whose bytes were fetched ahead.
    statahead_files_total,
    /// statahead: of these then read.
    statahead_files_hit,
    /// statahead: files whose sizes were asked for ahead (AGL).
    statahead_agl_total,
    /// statahead: of these then wanted.
    statahead_agl_hit,
    /// statahead: of these not told, since somebody writes to them.
    statahead_agl_refused,
    /// Changes sent to the MDT in sets (wbc).
    update_changes,
    /// Server restarts and evictions seen.
    recoveries,
}

impl Stats {
    /// A request of a kind was sent.
    pub(crate) fn sent(&self, kind: &'static str) {
        *self
            .requests
            .lock()
            .unwrap_or_else(|p| p.into_inner())
            .entry(kind)
            .or_default() += 1;
    }
}

/// Adds one to a counter.
pub(crate) fn bump(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}
