//! What a restart asks of clients before anybody is served. Each kind of change done again, who is
//! waited for, and what becomes of those who do not come.

mod support;

use base::{BootEpoch, ClientId, Fid, FsError, LockHandle, TargetIndex, Transno};
use rpc::serving::{Arrival, Effect, Machine, Moment, Part, Room};
use rpc::window::RECOVERY_WINDOW;
use rpc::{Batch, ClientUuid, Message, PeerInfo, ReplyMessage};
use support::*;
use wire::mdt::{OpenIntent, RenameMode, Reply, Request, SetAttr, SetTime, SizeUpdate};
use wire::{SizeState, opcode};

fn getattr(fid: Fid) -> Request {
    let dir = Fid::NONE;
    Request::GetAttr { fid, dir }
}

/// All that was lost is done again by everybody, who then says so.
fn recover(world: &mut World) {
    for done in world.lost() {
        let (result, _) = world.replay(&done);
        assert!(result.is_ok(), "{done:?}: {result:?}");
    }
    for client in world
        .clients
        .values()
        .map(|client| client.id)
        .collect::<Vec<_>>()
    {
        world.ready(client);
    }
}

#[test]
fn what_was_told_with_a_close_is_told_again() {
    let mut world = World::new();
    let a = world.connect(1);
    let fid = world.fid(a);
    world.flush();
    world.auto_flush = false;
    let create = create_open_request(fid, Fid::ROOT, "f", WRITE);
    let Ok(Reply::Created { handle, node, .. }) = world.call(a, create) else {
        panic!()
    };
    let under = match node.cover {
        wire::Cover::Own(grant) if grant.mode == dlm::Mode::EX.index() as u8 => grant.handle,
        _ => base::LockHandle(0),
    };
    let change = SetAttr {
        mode: Some(0o640),
        mtime: Some(SetTime::At(FORMATTED)),
        ..SetAttr::default()
    };
    let close = Request::Close {
        fid,
        dir: Fid::NONE,
        handle,
        change,
        under,
    };
    assert!(world.call(a, close).is_ok());
    world.crash_awaiting();
    recover(&mut world);
    let attr = world.getattr(a, fid).expect("made again").attr;
    assert_eq!((attr.mode, attr.mtime), (0o640, FORMATTED));
    assert_eq!(attr.ctime, node.attr.ctime);
    assert_eq!(
        attr.size_state,
        SizeState::Ask,
        "its bytes were told of by nobody"
    );
    assert!(
        world.mds.opens().is_empty(),
        "uses are told of by themselves"
    );
    world.check();
}

#[test]
fn nobody_is_served_before_all_are_back() {
    let mut world = World::new();
    let (a, b) = (world.connect(1), world.connect(2));
    let (d, e) = (
        world.mkdir(a, Fid::ROOT, "d"),
        world.mkdir(b, Fid::ROOT, "e"),
    );
    world.flush();
    world.auto_flush = false;
    world.touch(a, d, "f");
    world.crash_awaiting();
    let seen = world.send(b, getattr(e));
    assert!(world.poll(seen).is_none());
    world.ready(b);
    let stranger = world.connect(3);
    let other = world.send(stranger, getattr(d));
    assert!(world.poll(seen).is_none() && world.poll(other).is_none());
    let awaited: Vec<_> = world.mds.recovery().awaited().copied().collect();
    assert_eq!(
        awaited,
        [ClientUuid([1; 16])],
        "who never changed anything is not waited for"
    );
    let lost = world.lost();
    assert_eq!(lost.len(), 1);
    assert!(world.replay(&lost[0]).0.is_ok());
    assert!(world.poll(other).is_none());
    world.ready(a);
    assert!(world.poll(seen).is_some());
    // What was done again is shown to others when it is durable.
    assert!(world.poll(other).is_none());
    world.flush();
    assert!(world.poll(other).is_some());
    world.auto_flush = true;
    assert_eq!(world.names(stranger, d), ["f"]);
    assert_eq!(world.mds.recovery().replayed(), 1);
}

/// Before anybody is served it is told what was changed under locks that are gone. What names such
/// a lock, or a use, is refused at once, and told so.
#[test]
fn what_was_changed_under_a_lock_is_told_before_others_are_served() {
    let mut world = World::new();
    let (a, b) = (world.connect(1), world.connect(2));
    let fid = world.fid(a);
    let create = create_open_request(fid, Fid::ROOT, "f", WRITE);
    let Ok(Reply::Created { handle, .. }) = world.call(a, create) else {
        panic!()
    };
    let gone = LockHandle(77);
    world.getattr(b, Fid::ROOT).expect("there");
    world.flush();
    world.crash_awaiting();
    let seen = world.send(b, getattr(fid));
    world.ready(b);
    let change = |mode| SetAttr {
        mode: Some(mode),
        ctime: Some(FORMATTED),
        ..SetAttr::default()
    };
    let close = Request::Close {
        fid,
        dir: Fid::NONE,
        handle,
        change: change(0o600),
        under: gone,
    };
    let tell = |mode, under| Request::SetAttr {
        fid,
        dir: Fid::NONE,
        change: change(mode),
        caller: Default::default(),
        under,
    };
    let refused = [(close, FsError::Stale), (tell(0o600, gone), FsError::Stale)];
    for (request, why) in refused {
        let sent = world.send(a, request);
        let answer = world.poll(sent).expect("at once");
        assert_eq!(answer.0.expect_err("that is over"), why);
    }
    let told = world.send(a, tell(0o640, LockHandle::ENDED));
    assert!(world.poll(told).expect("at once").0.is_ok());
    let later = world.send(a, tell(0o604, LockHandle(0)));
    assert!(world.poll(seen).is_none() && world.poll(later).is_none());
    world.ready(a);
    world.flush();
    let Some((Ok(Reply::Node(node)), _)) = world.poll(seen) else {
        panic!()
    };
    assert_eq!(node.attr.mode, 0o640);
    assert!(world.poll(later).is_some());
    world.check();
}

#[test]
fn who_does_not_come_is_given_up_and_may_begin_anew() {
    let mut world = World::new();
    let (a, b) = (world.connect(1), world.connect(2));
    world.mkdir(a, Fid::ROOT, "durable");
    let e = world.mkdir(b, Fid::ROOT, "e");
    world.flush();
    world.auto_flush = false;
    world.mkdir(a, Fid::ROOT, "lost");
    world.crash_awaiting();
    world.ready(b);
    let waiting = world.send(b, getattr(e));
    world.advance(RECOVERY_WINDOW);
    assert!(world.mds.gave_up(&[1; 16]).expect("readable"));
    assert!(world.mds.is_giving_up(&[1; 16]) && !world.mds.is_giving_up(&[2; 16]));
    assert_eq!(world.poll(waiting), None, "that is not durable");
    world.flush();
    assert!(world.poll(waiting).is_some());
    assert!(!world.mds.is_giving_up(&[1; 16]), "it is durable");
    assert!(!world.mds.gave_up(&[2; 16]).expect("readable"));
    world.auto_flush = true;
    assert_eq!(world.names(b, Fid::ROOT), ["durable", "e"]);
    // A later crash does not wait for it, and remembers that it was given up.
    world.flush();
    world.crash_awaiting();
    assert_eq!(world.mds.recovery().awaited().count(), 1);
    world.ready(b);
    assert!(world.mds.gave_up(&[1; 16]).expect("readable"));
    world.ready(a);
    assert!(!world.mds.gave_up(&[1; 16]).expect("readable"));
    world.drop_sequence(a);
    world.mkdir(a, Fid::ROOT, "anew");
    world.check();
}

/// A client that forgets what it builds on loses what it built, and nothing else.
#[test]
fn what_cannot_be_done_again_is_refused_and_harms_nothing() {
    let mut world = World::new();
    let a = world.connect(1);
    world.fid(a);
    world.flush();
    world.auto_flush = false;
    let d = world.mkdir(a, Fid::ROOT, "d");
    world.touch(a, d, "f");
    world.mkdir(a, Fid::ROOT, "e");
    world.crash_awaiting();
    let lost = world.lost();
    assert_eq!(lost.len(), 3);
    let (refused, _) = world.replay(&lost[1]);
    assert!(refused.is_err(), "{refused:?}");
    assert!(world.replay(&lost[2]).0.is_ok());
    world.ready(a);
    world.auto_flush = true;
    world.flush();
    assert_eq!(world.names(a, Fid::ROOT), ["e"]);
    world.check();
}

/// Whose changes came between does not matter, where nothing of theirs builds on what is lost.
#[test]
fn what_a_survivor_does_again_stays_though_others_never_come() {
    let mut world = World::new();
    let (a, b) = (world.connect(1), world.connect(2));
    let shared = world.mkdir(a, Fid::ROOT, "shared");
    for client in [a, b] {
        world.fid(client);
    }
    world.flush();
    world.auto_flush = false;
    world.touch(a, shared, "lost");
    let mine = world.mkdir(b, Fid::ROOT, "mine");
    world.touch(a, Fid::ROOT, "lost too");
    world.touch(b, mine, "in it");
    world.touch(b, shared, "beside");
    world.crash_awaiting();
    let lost = world.lost();
    assert_eq!(lost.len(), 5, "none of it was durable");
    for done in lost.iter().filter(|done| done.call.client == b) {
        assert!(world.replay(done).0.is_ok(), "{done:?}");
    }
    world.ready(b);
    world.advance(RECOVERY_WINDOW);
    assert!(world.mds.gave_up(&[1; 16]).expect("readable"));
    assert_eq!(world.mds.recovery().replayed(), 3);
    world.auto_flush = true;
    let expected = |world: &mut World| {
        assert_eq!(world.names(b, Fid::ROOT), ["mine", "shared"]);
        assert_eq!(world.names(b, mine), ["in it"]);
        assert_eq!(world.names(b, shared), ["beside"]);
        world.check();
    };
    expected(&mut world);
    world.flush();
    world.clients.remove(&1);
    world.crash();
    expected(&mut world);
}

#[test]
fn who_says_goodbye_is_not_waited_for() {
    let mut world = World::new();
    let a = world.connect(1);
    world.mkdir(a, Fid::ROOT, "d");
    world.flush();
    world.goodbye(a);
    world.flush();
    world.crash_awaiting();
    assert!(!world.mds.recovery().is_open());
    assert!(!world.mds.gave_up(&[1; 16]).expect("readable"));
}

#[test]
fn each_boot_says_what_survived_of_the_one_before() {
    let mut world = World::new();
    let a = world.connect(1);
    world.mkdir(a, Fid::ROOT, "d");
    world.flush();
    let first = world.mds.last_committed();
    world.auto_flush = false;
    world.mkdir(a, Fid::ROOT, "lost");
    world.crash_awaiting();
    recover(&mut world);
    world.flush();
    let second = world.mds.last_committed();
    assert!(second > first);
    world.crash();
    let survived = |boot_epoch| world.mds.survived(BootEpoch(boot_epoch)).expect("readable");
    assert_eq!(survived(1), first);
    assert_eq!(survived(2), second);
    assert_eq!(survived(3), world.mds.last_committed(), "the present one");
}

#[test]
fn a_new_files_bytes_stay_where_they_were() {
    let rules = mds::Rules {
        osts: (0..5).map(TargetIndex).collect(),
        ..mds::Rules::default()
    };
    let mut world = World::with(rules, 56);
    let (a, b) = (world.connect(1), world.connect(2));
    let fids: Vec<_> = [a, b, a, b]
        .map(|client| (client, world.fid(client)))
        .into();
    world.flush();
    world.auto_flush = false;
    let mut made = Vec::new();
    for (number, (client, fid)) in fids.into_iter().enumerate() {
        let create = create_open_request(fid, Fid::ROOT, &format!("f{number}"), WRITE);
        let Ok(Reply::Created { node, .. }) = world.call(client, create) else {
            panic!()
        };
        made.push(node);
    }
    world.crash_awaiting();
    // In another order, so with other transnos.
    let mut lost = world.lost();
    lost.sort_by_key(|done| done.call.client);
    assert!(lost.iter().map(|done| done.transno).ne((1..).map(Transno)));
    for done in lost {
        assert!(world.replay(&done).0.is_ok());
    }
    [a, b].into_iter().for_each(|client| world.ready(client));
    world.auto_flush = true;
    for node in made {
        let now = world.getattr(a, node.fid).expect("there").attr;
        assert_eq!(now.layout, node.attr.layout);
        assert_eq!(now.ctime, node.attr.ctime);
    }
}

/// A writer's open file is told of beside what was under way, which may come first.
#[test]
fn what_a_writer_says_of_the_size_before_it_is_known_again_is_left_to_the_osts() {
    let mut world = World::new();
    let (a, b) = (world.connect(1), world.connect(2));
    let fid = world.touch(a, Fid::ROOT, "f");
    let handle = world.open(a, fid, WRITE).expect("opened");
    let size = SizeUpdate {
        size: 5,
        blocks: 8,
        mtime: FORMATTED,
        committed: false,
    };
    let change = SetAttr {
        size: Some(size),
        ..SetAttr::default()
    };
    let told = world.setattr(a, fid, change.clone()).expect("a writer");
    assert_eq!(told.attr.size, 5);
    assert_eq!(world.setattr(b, fid, change.clone()), Err(FsError::Invalid));
    world
        .close(a, fid, handle, SetAttr::default())
        .expect("closed");
    world.open(a, fid, WRITE).expect("opened");
    world.flush();
    world.crash();
    let change = SetAttr {
        size: Some(SizeUpdate { size: 9, ..size }),
        mode: Some(0o600),
        ..SetAttr::default()
    };
    let told = world.setattr(a, fid, change).expect("a writer before");
    assert_eq!((told.attr.size, told.attr.mode), (5, 0o600));
    assert_eq!(told.attr.size_state, SizeState::Ask);
    world.check();
}

/// What its maker wrote may be nowhere but there: the client that looks is sent to hear of it, as
/// before.
#[test]
fn who_had_a_file_to_itself_has_it_again_while_nobody_is_served() {
    let mut world = World::new();
    let (a, b) = (world.connect(1), world.connect(2));
    let (before, fid) = (world.fid(a), world.fid(a));
    world.getattr(b, Fid::ROOT).expect("there");
    for (fid, name) in [(before, "e"), (fid, "f")] {
        let create = create_open_request(fid, Fid::ROOT, name, WRITE);
        assert!(world.call(a, create).is_ok());
    }
    world.flush();
    world.crash_awaiting();
    use OpenIntent::{Reopen, ReopenExclusive};
    let again = |fid, intent| Request::Open {
        fid,
        dir: Fid::NONE,
        access: WRITE,
        intent,
    };
    let exclusive = |world: &mut World, client, request| {
        let sent = world.send(client, request);
        match world.poll(sent).expect("at once").0 {
            Ok(Reply::Opened { node, .. }) => matches!(node.cover, wire::Cover::Own(_)),
            other => panic!("{other:?}"),
        }
    };
    assert!(!exclusive(&mut world, a, again(before, Reopen)));
    assert!(exclusive(&mut world, a, again(fid, ReopenExclusive)));
    assert!(
        !exclusive(&mut world, b, again(fid, ReopenExclusive)),
        "one of them"
    );
    world.ready(b);
    world.ready(a);
    world.flush();
    assert!(
        !exclusive(&mut world, a, again(before, ReopenExclusive)),
        "too late"
    );
    let mut attr = world.getattr(a, fid).expect("there").attr;
    attr.size = 77;
    world.client(a).held.insert(fid, attr);
    assert_eq!(world.getattr(b, fid).expect("there").attr.size, 77);
    world.check();
}

/// `x` and `y`, names of one file; what moves one onto the other does nothing.
fn two_names(world: &mut World) -> (ClientId, ClientId, Request) {
    let (a, b) = (world.connect(1), world.connect(2));
    let file = world.touch(a, Fid::ROOT, "x");
    world.link(a, file, Fid::ROOT, "y").expect("linked");
    world.fid(a);
    world.flush();
    world.auto_flush = false;
    let (x, y) = ((Fid::ROOT, "x"), (Fid::ROOT, "y"));
    let nothing = rename_request(x, y, RenameMode::Replace, ROOT_USER);
    (a, b, nothing)
}

fn move_y_away(world: &mut World, client: ClientId) {
    let (y, z) = ((Fid::ROOT, "y"), (Fid::ROOT, "z"));
    world
        .rename(client, y, z, RenameMode::Replace)
        .expect("moved");
}

/// It would do something, had another client been faster with what it did after it.
#[test]
fn what_did_nothing_is_not_done_again() {
    let mut world = World::new();
    let (a, b, nothing) = two_names(&mut world);
    world.call(a, nothing).expect("done");
    move_y_away(&mut world, b);
    world.crash_awaiting();
    let mut lost = world.lost();
    lost.reverse();
    for done in lost {
        assert!(world.replay(&done).0.is_ok());
    }
    [a, b].into_iter().for_each(|client| world.ready(client));
    world.auto_flush = true;
    assert_eq!(world.names(b, Fid::ROOT), ["x", "z"]);
}

/// The connection broke before that was answered: it is sent once more, in the same boot.
#[test]
fn what_is_done_again_twice_is_done_once() {
    let mut world = World::new();
    let a = world.connect(1);
    for text in ["e", "f", "g"] {
        world.touch(a, Fid::ROOT, text);
    }
    let [e, f] = ["e", "f"].map(|text| world.lookup(a, Fid::ROOT, text).expect("there").fid);
    world.flush();
    world.auto_flush = false;
    // A second time it would undo the first, or find nothing to do.
    world
        .rename(a, (Fid::ROOT, "e"), (Fid::ROOT, "f"), RenameMode::Exchange)
        .expect("exchanged");
    world.mkdir(a, Fid::ROOT, "d");
    world.unlink(a, Fid::ROOT, "g").expect("gone");
    world.crash_awaiting();
    let lost = world.lost();
    assert_eq!(lost.len(), 3);
    for (done, number) in lost.iter().zip(1..) {
        let (first, transno) = world.replay(done);
        assert!(first.is_ok(), "{done:?}: {first:?}");
        assert_eq!(world.replay(done), (Ok(done.reply.clone()), transno));
        assert_eq!(world.mds.recovery().replayed(), number);
    }
    // Also where it is durable meanwhile.
    world.flush();
    for done in lost {
        assert!(world.replay(&done).0.is_ok());
    }
    assert_eq!(world.mds.recovery().replayed(), 3);
    world.ready(a);
    world.auto_flush = true;
    assert_eq!(world.names(a, Fid::ROOT), ["d", "e", "f"]);
    let now = ["e", "f"].map(|text| world.lookup(a, Fid::ROOT, text).expect("there").fid);
    assert_eq!(now, [f, e], "exchanged once");
    world.check();
}

/// Its requests, as client `a` sends them in one frame, and what they are answered.
fn frame(
    world: &mut World,
    a: ClientId,
    batch: &Batch,
    answered: Option<&[ReplyMessage]>,
) -> Vec<ReplyMessage> {
    let moment = Moment {
        now: world.tick,
        wall: world.wall,
    };
    let mut room = Room {
        answers: mds::Mds::ANSWER_BYTES_MAX,
        data: 0,
    };
    let arrival = Arrival {
        client: a,
        slot: 60,
        xid: base::Xid(1),
        first_tag: 1 << 40,
        batch,
        answered,
        from: 0,
        part: Part::ALL,
        room: &mut room,
    };
    let mut out = Vec::new();
    world.mds.requests(moment, arrival, &mut out);
    let answer = |output| match mds::Mds::effect(output) {
        Effect::Answer { answer, .. } => answer,
        _ => panic!("nobody is in the way"),
    };
    out.into_iter().map(answer).collect()
}

#[test]
fn of_a_frame_that_was_lost_the_changes_are_made_again_and_no_more() {
    let mut world = World::new();
    let (a, b, nothing) = two_names(&mut world);
    let made = create_open_request(world.fid(a), Fid::ROOT, "made", WRITE);
    let refused = create_open_request(world.fid(a), Fid::ROOT, "x", WRITE);
    let messages = [made, refused, nothing].map(|request| Message {
        opcode: opcode::MDT,
        body: wire::encode(&request),
    });
    let batch = Batch {
        messages: messages.into(),
        ..Batch::default()
    };
    let answered = frame(&mut world, a, &batch, None);
    assert_eq!((answered[0].status, answered.len()), (0, 3));
    move_y_away(&mut world, b);
    world.crash_awaiting();
    for done in world.lost() {
        assert!(world.replay(&done).0.is_ok());
    }
    let again = frame(&mut world, a, &batch, Some(&answered));
    assert_eq!((again[0].status, again.len()), (0, 3));
    [a, b].into_iter().for_each(|client| world.ready(client));
    world.auto_flush = true;
    assert_eq!(world.names(b, Fid::ROOT), ["made", "x", "z"]);
}

/// The second request of a frame was done first, and is durable; a crash takes the first alone.
#[test]
fn what_is_durable_of_a_frame_is_not_done_again_with_what_is_lost() {
    let mut world = World::new();
    let (a, b) = (world.connect(1), world.connect(2));
    let file = world.touch(a, Fid::ROOT, "f");
    let lost = create_open_request(world.fid(a), Fid::ROOT, "lost", WRITE);
    let mode = |mode| SetAttr {
        mode: Some(mode),
        ..SetAttr::default()
    };
    let durable = Request::SetAttr {
        fid: file,
        dir: Fid::NONE,
        change: mode(0o600),
        caller: ROOT_USER,
        under: LockHandle(0),
    };
    let (slot, xid) = (60, base::Xid(1));
    let second = world.send_in(a, slot, xid, 1, durable.clone());
    let second = world.wait(second);
    world.setattr(b, file, mode(0o640)).expect("changed since");
    world.flush();
    world.auto_flush = false;
    let first = world.send_in(a, slot, xid, 0, lost.clone());
    let first = world.wait(first);
    world.crash_awaiting();
    let answered: Vec<_> = [first, second]
        .map(|(result, _)| ReplyMessage {
            status: 0,
            body: wire::encode(&result.expect("done")),
        })
        .into();
    let messages = [lost, durable].map(|request| Message {
        opcode: opcode::MDT,
        body: wire::encode(&request),
    });
    let batch = Batch {
        messages: messages.into(),
        ..Batch::default()
    };
    let again = frame(&mut world, a, &batch, Some(&answered));
    assert_eq!((again[0].status, &again[1]), (0, &answered[1]));
    assert_eq!(world.mds.recovery().replayed(), 1);
    [a, b].into_iter().for_each(|client| world.ready(client));
    world.auto_flush = true;
    assert_eq!(world.names(b, Fid::ROOT), ["f", "lost"]);
    let attr = world.getattr(b, file).expect("there").attr;
    assert_eq!(attr.mode, 0o640);
    world.check();
}

/// Whether it was given up, and is to be waited for, is not guessed.
#[test]
fn a_client_of_which_a_record_is_damaged_is_not_let_in() {
    let mut world = World::new();
    let uuid = ClientUuid([1; 16]);
    let clients = mds::store::table_id(mds::keys::Table::Clients);
    let mut batch = storage::Batch::new();
    batch.put(clients, uuid.0, vec![9, 9]);
    world.kv.commit(batch).expect("stored");
    let peer = PeerInfo {
        uuid,
        incarnation: 1,
        address: "10.0.0.1:700".to_owned(),
        uid: None,
        credential: rpc::Credential::Client,
        was_given_up: false,
    };
    let why = Machine::connected(&mut world.mds, ClientId(1), &peer).expect_err("damaged");
    assert!(
        why.contains("what is known of a client cannot be read"),
        "{why}"
    );
    assert_eq!(Machine::gave_up(&world.mds, uuid), Err(why));
}
