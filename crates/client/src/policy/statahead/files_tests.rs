//! Tests of streams of small files.

use super::*;

const DIR: Fid = Fid(7 << 24 | 1);
const BELOW: Fid = Fid(7 << 24 | 2);
const NOW: Tick = Tick(0);
const PLENTY: u64 = 16 << 20;

/// The next file of the list.
const LISTED: Gaps = Gaps {
    cookie: Some(0),
    name: None,
    inode: None,
};
/// The next file by name, and far away in the list.
const NAMED: Gaps = Gaps {
    cookie: None,
    name: Some(0),
    inode: Some(5),
};

fn spot(cookie: u64) -> Spot {
    Spot { dir: DIR, cookie }
}

fn below(cookie: u64) -> Spot {
    Spot { dir: BELOW, cookie }
}

fn order(key: Key, descent: Descent) -> Order {
    Order { key, descent }
}

/// Ten files of so many bytes are asked for, up to `at` if that is given. The order.
fn ask(files: &mut Files, stream: StreamId, at: Option<&[Spot]>) -> (u64, Order) {
    let room = files.room(stream, PLENTY).expect("room");
    let cursors = |path: &[Spot]| {
        let cursor = |spot: &Spot| Cursor::new(spot.dir, spot.cookie);
        path.iter().map(cursor).collect()
    };
    files.asked(stream, 10, room.bytes, at.map_or(room.at, cursors));
    (room.bytes, room.order)
}

#[test]
fn what_is_ahead_doubles_while_it_is_read_up_to_the_bound() {
    let mut files = Files::default();
    let stream = files.turn(&[spot(10)], &LISTED, NOW).expect("begun");
    let mut sizes = Vec::new();
    for n in 0..9 {
        let (room, _) = ask(&mut files, stream, None);
        sizes.push(room);
        assert_eq!(files.room(stream, PLENTY), None, "enough is ahead");
        (0..4).for_each(|_| files.read(stream, room / 4, NOW));
        assert_eq!(files.recent(DIR), (n > 0).then(|| spot(n)));
        files.note(spot(n + 1), true);
    }
    assert_eq!(sizes[..3], [256 << 10, 512 << 10, 1 << 20]);
    assert_eq!(sizes[8], PLENTY);
}

#[test]
fn who_turns_without_reading_what_came_gets_less_and_then_nothing() {
    let mut files = Files::default();
    let mut sizes = Vec::new();
    for n in 0..9 {
        if let Some(stream) = files.turn(&[spot(n)], &LISTED, NOW) {
            sizes.push(ask(&mut files, stream, None).0);
        }
    }
    assert_eq!(sizes, [256 << 10, 128 << 10, 64 << 10]);
}

#[test]
fn who_follows_another_order_is_followed() {
    let mut files = Files::default();
    let path = [spot(10), below(30)];
    let stream = files.turn(&path, &LISTED, NOW).expect("begun");
    assert_eq!(ask(&mut files, stream, None).1, Order::default());
    for _ in 0..2 {
        assert_eq!(files.turn(&path, &NAMED, NOW), Some(stream));
        let (room, shown) = ask(&mut files, stream, None);
        let named = order(Key::Name, Descent::InPlace);
        assert_eq!((room, shown), (AHEAD_BYTES_FIRST, named));
        (0..10).for_each(|_| files.read(stream, room / 10, NOW));
    }
    let other = [
        spot(20),
        Spot {
            dir: Fid(9),
            ..spot(1)
        },
    ];
    let near = Gaps {
        cookie: Some(1),
        ..NAMED
    };
    let second = files.turn(&other, &near, NOW).expect("begun elsewhere");
    let (_, shown) = ask(&mut files, second, None);
    assert_eq!(
        (second == stream, shown.key),
        (false, Key::Name),
        "as seen nearby"
    );
}

#[test]
fn a_subdirectory_that_is_passed_over_comes_after_the_files() {
    let mut files = Files::default();
    let stream = files.turn(&[spot(10)], &LISTED, NOW).expect("begun");
    ask(&mut files, stream, Some(&[spot(20), below(70)]));
    assert_eq!(files.turn(&[spot(40)], &LISTED, NOW), Some(stream));
    let (room, shown) = ask(&mut files, stream, Some(&[spot(50)]));
    assert_eq!(shown, order(Key::Cookie, Descent::AfterFiles));
    assert_eq!(
        room, AHEAD_BYTES_FIRST,
        "the order was wrong, not the guess"
    );
    // And one that is entered before the files are read is in its place again.
    let entered = [spot(60), below(10)];
    assert_eq!(files.turn(&entered, &LISTED, NOW), Some(stream));
    assert_eq!(ask(&mut files, stream, None).1, Order::default());
}

#[test]
fn who_turns_to_ever_other_orders_gets_nothing_in_the_end() {
    let mut files = Files::default();
    let asked = (0..99).filter(|n| {
        let gaps = [LISTED, NAMED][n % 2];
        let Some(stream) = files.turn(&[spot(1)], &gaps, NOW) else {
            return false;
        };
        ask(&mut files, stream, None);
        true
    });
    let most = usize::from(ORDERS_MAX + WRONG_MAX);
    assert!(asked.count() <= most);
}

#[test]
fn a_stream_that_waits_for_a_list_goes_on_there() {
    let mut files = Files::default();
    let stream = files.turn(&[spot(10)], &LISTED, NOW).expect("begun");
    let path = [spot(20), below(30)];
    assert_eq!(files.waits_within(&path), None);
    ask(&mut files, stream, Some(&[spot(20), below(0)]));
    assert_eq!(files.waits_within(&path), Some(stream));
    assert_eq!(files.waits_within(&path[..1]), None);
}

#[test]
fn a_large_directory_is_not_looked_through_for_an_order_for_ever() {
    let mut files = Files::default();
    for n in 0..ASTRAY_MAX {
        assert!(files.may_be_in_order(DIR));
        files.note(spot(u64::from(n)), false);
    }
    assert!(!files.may_be_in_order(DIR) && files.may_be_in_order(BELOW));
    files.note(spot(99), true);
    assert!(files.may_be_in_order(DIR));
}

#[test]
fn what_is_refused_is_not_waited_for_and_a_reader_that_is_gone_is_forgotten() {
    let mut files = Files::default();
    let stream = files.turn(&[spot(1)], &LISTED, NOW).expect("begun");
    ask(&mut files, stream, None);
    assert_eq!(files.room(stream, PLENTY), None);
    files.refused(stream, AHEAD_BYTES_FIRST);
    let room = files.room(stream, PLENTY).expect("room");
    files.asked(stream, 1, 1, room.at);
    files.turn(&[below(1)], &LISTED, NOW.after(IDLE));
    assert_eq!(files.room(stream, PLENTY), None);
}
