//! Every bound in one place, with the relations between them checked at compile time.
//!
//! Each constant says what happens there: refuse, block, or shed.

use std::time::Duration;

/// Bytes in a name. Beyond: refused, `NameTooLong`.
pub const NAME_BYTES_MAX: usize = 255;
/// Bytes in a symlink's target. Beyond: refused, `NameTooLong`.
pub const SYMLINK_BYTES_MAX: usize = 4095;
/// Bytes in an extended attribute's name. Beyond: refused, `Range`.
pub const XATTR_NAME_BYTES_MAX: usize = 255;
/// Bytes in one extended attribute's value. Beyond: refused, `TooLarge`.
pub const XATTR_VALUE_BYTES_MAX: usize = 64 * 1024;
/// Bytes in all extended attributes of one file. Beyond: refused, `NoSpace`.
pub const XATTR_TOTAL_BYTES_MAX: usize = 256 * 1024;
/// Hard links to one file. Beyond: refused, `TooManyLinks`.
pub const LINKS_MAX: u32 = 65_000;
/// Bytes in a file. Beyond: refused, `FileTooBig`. Stays clear of i64 arithmetic and of EOF.
pub const FILE_BYTES_MAX: u64 = (1 << 63) - (1 << 20);

/// Bytes in a key of a metadata store. Beyond: refused.
pub const KV_KEY_BYTES_MAX: usize = 1024;
/// Bytes in a value of a metadata store. Beyond: refused.
pub const KV_VALUE_BYTES_MAX: usize = 1 << 20;

/// Bytes in one frame, header and bulk included. Beyond: the peer is disconnected.
pub const FRAME_BYTES_MAX: usize = 5 << 20;
/// Sub-requests in one frame. Beyond: the peer is disconnected.
pub const FRAME_REQUESTS_MAX: usize = 4096;
/// Changes in one update. Beyond: refused as a whole.
pub const UPDATE_CHANGES_MAX: usize = 256;
/// Directories whose names one update changes. Beyond: refused as a whole.
pub const UPDATE_DIRS_MAX: usize = 2;
/// Bytes of file data in one read or write request.
pub const BULK_BYTES_MAX: usize = 4 << 20;
/// Bytes of names and attributes in one directory page.
pub const PAGE_BYTES_MAX: usize = 1 << 20;
/// Bytes of pages in one answer to a walk of a tree. Beyond: its reader asks for the rest.
pub const WALK_BYTES_MAX: usize = 4 << 20;
/// Directories below each other in a walk. Beyond: refused; deeper ones are read one by one.
pub const WALK_DEPTH_MAX: usize = 128;
/// Requests for stretches of trees that one client has under way. Beyond: refused, try again.
pub const WALKS_PER_CLIENT_MAX: usize = 8;
/// Hints of programs, about names that they will ask for, that a mount follows at once. Beyond: the
/// one used longest ago ends.
pub const ADVICE_MAX: usize = 64;
/// Memory for the names of one such hint. Beyond: refused, try again.
pub const ADVISED_LIST_BYTES_MAX: usize = 2 << 20;
/// Names in a range that a program advises. Beyond: refused, `Invalid`.
pub const ADVISED_RANGE_MAX: u64 = 1 << 30;
/// Trees that hints of programs fetch at once. Beyond: refused, try again.
pub const ADVISED_TREES_MAX: usize = 2;
/// Entries in one directory page.
pub const PAGE_ENTRIES_MAX: usize = 8192;
/// Request frames of one client a server holds at once (its slots). Beyond: the client waits.
pub const SLOTS_MAX: u16 = 64;
/// Bytes of replies that a client may leave untaken, beside those in its socket. Beyond: the server reads no
/// more of its requests until half of them are taken.
pub const UNTAKEN_BYTES_MAX: usize = 2 * FRAME_BYTES_MAX;
/// Bytes that a transport without a socket may have under way. Half of it is what an OST reads for one client
/// beside its core.
pub const PEER_QUEUE_BYTES_MAX: usize = 64 << 20;

/// Callbacks to one client under way at once. Beyond: they wait here for their turn.
pub const CALLBACK_SLOTS_MAX: u16 = 1024;
/// Calls (or callbacks) of one session waiting for a slot or a connection. Beyond: shed, `Timeout`.
pub const UNSENT_CALLS_MAX: usize = 1 << 16;
/// Bytes of a reply that a slot keeps for a resend. Beyond, and if it changed nothing: made again.
pub const STORED_REPLY_BYTES_MAX: usize = PEER_QUEUE_BYTES_MAX / SLOTS_MAX as usize;
/// Bytes of replies that all clients of a server together have not taken yet; and as many that it keeps for
/// resends. On a large machine: a part of its memory. Beyond the first, connections are cut. Beyond half of
/// the second, replies that changed nothing are made again; beyond it, sessions end.
pub const REPLIES_BYTES_MIN: usize = 256 << 20;
/// Which part of a server's memory that is.
pub const REPLIES_MEMORY_SHARE: u64 = 64;
/// Connections of a server that have not said yet who they are. Beyond: the oldest of the source with most
/// of them is told that the server is busy, and closed; the newest where no source has more than its own.
pub const HANDSHAKES_MAX: usize = 256;
/// The same of one machine, or of one user of this one. Beyond: the oldest of them.
pub const HANDSHAKES_PER_SOURCE_MAX: usize = 64;
/// How long a connection may take to say who it is. Beyond: closed.
pub const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a connection may be silent before its peer is asked whether it lives.
pub const KEEPALIVE_IDLE: Duration = Duration::from_secs(10);
/// How long a connection may be silent at all. Beyond: closed.
pub const KEEPALIVE_DEAD: Duration = Duration::from_secs(40);
/// Bytes of a frame that are a sign of life before the frame is there. Fewer within [`KEEPALIVE_DEAD`] are
/// not: pings would fill up what is missing of a frame of which a part has vanished.
pub const KEEPALIVE_BYTES: u64 = 64 << 10;
/// Clients of one target with a session. Beyond: refused.
pub const CLIENTS_MAX: usize = 1 << 17;
/// Bytes of frames, with their answers, that a session keeps until they are durable. Beyond:
/// ordinary requests wait for that.
pub const REPLAY_BYTES_MAX: usize = 64 << 20;
/// How long a client may be gone before its session ends.
pub const SESSION_GRACE: Duration = Duration::from_secs(150);

/// Rules by which requests to one target wait. Beyond: refused.
pub const RULES_MAX: usize = 64;
/// Buckets of all rules of one target. Beyond: the clients, or callers, that come then share one.
pub const RULE_CLASSES_MAX: usize = 1 << 16;
/// Targets of a file system. Beyond: registration is refused.
pub const TARGETS_MAX: usize = 4096;
/// Addresses of one target. Beyond: registration is refused.
pub const TARGET_ADDRESSES_MAX: usize = 16;
/// Bytes of one address. Beyond: registration is refused.
pub const ADDRESS_BYTES_MAX: usize = 300;

/// Bytes of requests that all clients of one target have under way there, and of answers to parts of their
/// frames. Beyond: a client that has more than an equal share of them is refused, try again.
pub const UNANSWERED_BYTES_MAX: usize = 256 << 20;
/// Bytes of requests that wait for tokens at one target. Beyond: they go at once, and owe them.
pub const HELD_BYTES_MAX: usize = 256 << 20;
/// A request waits for tokens for at most this part of the time after which a client is evicted.
pub const HELD_SHARE: u32 = 5;

/// Locks one client may hold or await on one target. Beyond: it is told to cancel its oldest.
pub const LOCKS_PER_CLIENT_MAX: usize = 1 << 20;
/// Idle locks a client keeps. Beyond: the oldest are cancelled.
pub const LOCK_LRU_MAX: usize = 400_000;
/// How long a client keeps an idle lock.
pub const LOCK_AGE_MAX: Duration = Duration::from_secs(600);
/// Cancels carried in one message.
pub const CANCEL_BATCH_MAX: usize = 256;
/// How long a client may take to give a lock back. Beyond: it is evicted.
pub const CALLBACK_DEADLINE: Duration = Duration::from_secs(100);
/// Withdrawn children remembered for one lease. Beyond: the lease's CHILD bit goes as a whole.
pub const LEASE_WITHDRAWN_MAX: usize = 256;
/// Withdrawals in [`LEASE_CONTENTION_WINDOW`] that end a directory's lease.
pub const LEASE_CONTENTION_MAX: usize = 16;
/// Over how long withdrawals are counted.
pub const LEASE_CONTENTION_WINDOW: Duration = Duration::from_secs(4);
/// Two callbacks on a directory's write lease within this, both for writers, are contention.
pub const WRITE_LEASE_CONTENTION_WINDOW: Duration = Duration::from_secs(1);
/// How long a contended directory gives no lease.
pub const LEASE_CONTENTION_HOLD: Duration = Duration::from_secs(30);

/// Conflicts in [`EXTENT_CONTENTION_WINDOW`] after which an object's extents are granted as asked.
pub const EXTENT_CONTENTION_MAX: usize = 16;
/// Over how long conflicts are counted.
pub const EXTENT_CONTENTION_WINDOW: Duration = Duration::from_secs(4);
/// How long a contended object's extents are granted as asked.
pub const EXTENT_CONTENTION_HOLD: Duration = Duration::from_secs(30);
/// Granted extents grow to multiples of this many bytes.
pub const EXTENT_ALIGN: u64 = 4096;
/// Lock requests and operations that wait on one target. Beyond: refused, try again.
pub const LOCK_WAITERS_MAX: usize = 1 << 16;
/// Lock requests of one client that wait on one target. Beyond: refused, try again.
pub const LOCK_WAITERS_PER_CLIENT_MAX: usize = 4096;
/// Callbacks a client remembers for grants still under way. Beyond: not answered.
pub const EARLY_CALLBACKS_MAX: usize = 1 << 14;
/// How long it does so for one of an MDT. Beyond: the lock is given up unseen, and the answer that it
/// comes with is used once. (An answer may wait long for others of its frame. One of an OST brings the
/// bytes that were asked for, which are of no use without the lock: for that half a deadline is waited.)
pub const EARLY_CALLBACK_MDT_AGE: Duration = Duration::from_secs(2);
/// Files with lost writes that a client remembers, to name them when it is asked. Beyond: only their number.
pub const LOST_FILES_MAX: usize = 1 << 12;
/// Idle locks a client gives up in one go.
pub const LOCK_LRU_BATCH: usize = 256;

/// Sequences granted at once.
pub const SEQUENCES_PER_GRANT: u64 = 1;

const _: () = assert!(HANDSHAKES_PER_SOURCE_MAX < HANDSHAKES_MAX);
const _: () = assert!(XATTR_TOTAL_BYTES_MAX < KV_VALUE_BYTES_MAX);
const _: () = assert!(BULK_BYTES_MAX + (64 << 10) < FRAME_BYTES_MAX);
const _: () = assert!(PAGE_BYTES_MAX < FRAME_BYTES_MAX);
const _: () = assert!(WALK_BYTES_MAX + (64 << 10) < FRAME_BYTES_MAX);
const _: () = assert!(PEER_QUEUE_BYTES_MAX >= UNTAKEN_BYTES_MAX);
const _: () = assert!(UNTAKEN_BYTES_MAX >= 2 * FRAME_BYTES_MAX);
const _: () = assert!(2 * SESSION_GRACE.as_secs() == 3 * CALLBACK_DEADLINE.as_secs());
const _: () = assert!(LOCK_LRU_MAX <= LOCKS_PER_CLIENT_MAX);
