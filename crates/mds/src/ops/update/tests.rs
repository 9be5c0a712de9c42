//! What a set of changes writes, as a count of records.

use base::{ClientId, LockHandle, Timestamp};
use wire::FileKind;
use wire::mdt::NewFile;
use wire::update::{MadeFile, Times};

use super::*;
use crate::keys::Table;
use crate::mutation::Mutation;
use crate::opens::Opens;
use crate::ops::context::{Rules, Who};
use crate::records::SequenceOwner;
use crate::rig::store_after;
use crate::txn::Txn;
use wire::hash::NameHasher;

const UUID: [u8; 16] = [1; 16];
const SEQUENCE: u64 = Fid::SEQUENCE_FIRST;

fn make(n: u32) -> Change {
    let file = NewFile {
        fid: Fid::new(SEQUENCE, n),
        kind: FileKind::Regular,
        mode: 0o644,
        rdev: 0,
        target: Vec::new(),
    };
    Change::Make {
        dir: 0,
        name: Name::new(format!("f{n}")).expect("valid"),
        made: MadeFile {
            file,
            uid: 0,
            gid: 0,
            times: Times::default(),
            ost: None,
            open: None,
        },
    }
}

/// What a set of so many new files in the root writes.
fn written(count: u32) -> Vec<Mutation> {
    let owner = SequenceOwner { client: UUID };
    let store = store_after(SEQUENCE + 1, vec![Mutation::PutSequence(SEQUENCE, owner)]);
    let state = store.get(Table::State, crate::keys::STATE);
    let state = state.expect("readable").expect("formatted");
    let (mut opens, rules) = (Opens::new(1), Rules::default());
    let now = Timestamp { secs: 9, nanos: 0 };
    let mut txn = Txn::new(&store, NameHasher::new(42), state, now);
    let mut ctx = Ctx {
        txn: &mut txn,
        opens: &mut opens,
        who: Who {
            client: ClientId(1),
            uuid: UUID,
        },
        rules: &rules,
        full: false,
        removing: false,
        grace: false,
        durable_first: false,
        may_be_done: false,
        replay: None,
    };
    let dirs = [LeasedDir {
        dir: Fid::ROOT,
        lease: LockHandle(0),
        changed: now,
    }];
    let changes: Vec<Change> = (1..=count).map(make).collect();
    let (dirs, changes) = (&dirs[..], &changes[..]);
    let done = Update { dirs, changes }.run(&mut ctx).expect("done");
    assert!(matches!(done, Reply::Updated { .. }), "{done:?}");
    txn.finish().0
}

#[test]
fn the_record_of_the_directory_is_written_once_and_two_for_each_new_file() {
    for count in [1, 64, 256] {
        let written = written(count);
        let of_dir = |one: &&Mutation| matches!(one, Mutation::PutInode(Fid::ROOT, _));
        assert_eq!(written.iter().filter(of_dir).count(), 1);
        assert_eq!(written.len(), 2 * count as usize + 1, "name and place");
    }
}
