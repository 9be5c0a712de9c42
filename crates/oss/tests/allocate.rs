//! Space in a file, while others want the file too.

mod rig;

#[allow(
    dead_code,
    reason = "`over_extents` has these tests too, and says it for them"
)]
const OVER_EXTENTS: bool = false;

use base::ByteRange;
use rig::{A, B, PR, PW, Rig, range};
use wire::ost::{AllocateMode, Reply};

#[test]
fn who_has_the_file_to_himself_does_not_wait_behind_those_who_want_it() {
    let mut rig = Rig::new();
    let held = rig.lock(A, PW, ByteRange::ALL);
    // B waits until A gives its lock back, which A does when it is done with the file.
    let waiting = rig.enqueue(B, PR, range(0, 4096));
    let (client, _, _) = rig.callback();
    assert_eq!(client, A);
    let request = rig.allocation(range(0, 4096), AllocateMode::Extend, held.handle);
    let answer = rig.ask(A, request, &[]).expect("done at once");
    assert!(matches!(answer.reply, Reply::Written { attr, .. } if attr.size == 4096));
    assert!(rig.reply(waiting).is_none());
    rig.cancel(A, held.handle);
    assert_eq!(rig.granted(waiting).1.size, 4096);
}
