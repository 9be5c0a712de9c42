//! Scripts of a hostile peer: what it does, line by line, and what must come of it.

use std::io;

use base::{TargetIndex, TargetKind, TargetName};
use rpc::Credential;
use wire::frame::{Frame, FrameKind};

use crate::peer::{Await, Outcome, Peer, Place, Who, hello};
use crate::requests;
use crate::shape::Node;

/// A script, read from text:
///
/// ```text
/// ## name of the script
/// to ost0                      who is spoken to: mgs, mdt0, ost0
/// as client                    client, server, stranger (no key), climber (a client that acts as a server)
/// over unix                    tcp, unless said
/// connect FIELD=VALUE ...      a hello with these fields, and the proof
/// send NAME FIELD=VALUE ...    a request; FIELD as in ticket.open_epoch
/// frame FIELD=VALUE ...        the next request's header: slot, xid, session, epoch, resent, replay, kind
/// say OPCODE NAME              a handshake message of that number, with a hello's bytes
/// bytes HEX                    raw
/// idle N                       so many connections more that say nothing
/// sweep                        each request of the target, each of its fields at its borders and beyond
/// cut                          each request, cut off at each byte, and one byte longer
/// hang up                      without a word
/// expect OUTCOME | OUTCOME     of the line before
/// ```
pub struct Script {
    pub name: String,
    pub lines: Vec<String>,
}

/// The scripts in a text.
pub fn read(text: &str) -> Vec<Script> {
    let mut all: Vec<Script> = Vec::new();
    for line in text.lines().map(str::trim) {
        if let Some(name) = line.strip_prefix("## ") {
            let (name, lines) = (name.to_owned(), Vec::new());
            all.push(Script { name, lines });
        } else if let Some(script) = all.last_mut().filter(|_| !line.is_empty()) {
            script.lines.push(line.to_owned());
        }
    }
    all
}

pub struct Player<'p> {
    place: &'p Place,
    target: TargetName,
    who: Who,
    over_unix: bool,
    peer: Option<Peer>,
    idle: Vec<Peer>,
    number: &'p mut u64,
    header: Vec<(String, u64)>,
    last: Outcome,
}

impl<'p> Player<'p> {
    pub fn new(place: &'p Place, number: &'p mut u64) -> Player<'p> {
        Player {
            place,
            target: TargetName::MGS,
            who: Who::Client,
            over_unix: false,
            peer: None,
            idle: Vec::new(),
            number,
            header: Vec::new(),
            last: Outcome::Nothing,
        }
    }

    pub fn play(&mut self, script: &Script) {
        for (at, line) in script.lines.iter().enumerate() {
            let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
            let told = format!("{}: {line}", script.name);
            let next = script.lines.get(at + 1);
            let expected = next.and_then(|line| line.strip_prefix("expect "));
            match word {
                "to" => self.target = target_of(rest),
                "as" => self.who = who_of(rest),
                "over" => self.over_unix = rest == "unix",
                "connect" => self.connect(rest, &told),
                "send" => {
                    let what = match expected.is_some_and(|all| !all.contains("silence")) {
                        true => Await::Answer,
                        false => Await::Turn,
                    };
                    self.last = self.send(rest, what, &told);
                }
                "frame" => {
                    self.header = settings(rest)
                        .map(|(name, value)| {
                            (name.to_owned(), number(value, 0).expect(&told) as u64)
                        })
                        .collect()
                }
                "say" => self.say(rest, expected.is_some(), &told),
                "bytes" => self.raw(rest, expected.is_some()),
                "idle" => self.stay_idle(rest.parse().expect(&told)),
                "sweep" => self.sweep(),
                "cut" => self.cut(),
                "hang" => self.peer = None,
                "expect" => {
                    let found = self.last.words();
                    let is_expected = rest.split('|').any(|one| one.trim() == found);
                    assert!(is_expected, "{told}: it was {found:?}");
                }
                _ => panic!("{told}: there is no such word"),
            }
        }
    }

    fn connect(&mut self, fields: &str, told: &str) {
        *self.number += 1;
        let credential = match self.who {
            Who::Client | Who::Stranger => Credential::Client,
            Who::Server | Who::Climber => Credential::Server,
        };
        let mut hello = Node::of(&hello(self.target, *self.number, credential));
        set_all(&mut hello, fields, told);
        let mut bytes = Vec::new();
        hello.encode(&mut bytes);
        let peer = Peer::silent(self.place, self.over_unix, self.target);
        let mut peer = peer.expect("the server listens");
        self.last = peer.greet(self.place, &bytes, self.who);
        self.peer = Some(peer);
    }

    fn send(&mut self, rest: &str, what: Await, told: &str) -> Outcome {
        let (name, fields) = rest.split_once(' ').unwrap_or((rest, ""));
        let all = requests::of(kind_of(self.target));
        let found = all.into_iter().find(|(known, _)| *known == name);
        let (_, mut request) = found.unwrap_or_else(|| panic!("{told}: no such request"));
        set_all(&mut request, fields, told);
        let mut body = Vec::new();
        request.encode(&mut body);
        let headers = std::mem::take(&mut self.header);
        let peer = self.peer.as_mut().expect(told);
        let mut frame = peer.request(body);
        headers
            .iter()
            .for_each(|(name, value)| set_header(&mut frame, name, *value));
        peer.ask(&frame, what)
    }

    /// A message of the handshake, out of order.
    fn say(&mut self, rest: &str, hears: bool, told: &str) {
        let opcode = rest.parse().expect(told);
        *self.number += 1;
        let body = hello(self.target, *self.number, Credential::Client).to_bytes();
        self.unasked(hears, |peer| peer.say_handshake(opcode, body));
    }

    fn raw(&mut self, hex: &str, hears: bool) {
        let digits: Vec<u8> = hex.bytes().filter(u8::is_ascii_hexdigit).collect();
        let pairs = digits.chunks_exact(2);
        let bytes: Vec<u8> = pairs
            .map(|pair| {
                let pair = std::str::from_utf8(pair).expect("digits");
                u8::from_str_radix(pair, 16).expect("digits")
            })
            .collect();
        self.unasked(hears, |peer| peer.bytes(&bytes));
    }

    /// What no peer would say, over the connection that there is or a new one.
    fn unasked(&mut self, hears: bool, say: impl FnOnce(&mut Peer) -> io::Result<()>) {
        let silent = || Peer::silent(self.place, self.over_unix, self.target);
        let peer = self
            .peer
            .get_or_insert_with(|| silent().expect("it listens"));
        self.last = match say(peer).and_then(|()| hears.then(|| peer.hear()).transpose()) {
            Ok(None) => Outcome::Nothing,
            Ok(Some(_)) => Outcome::Done,
            Err(_) => Outcome::Closed,
        };
    }

    fn stay_idle(&mut self, count: usize) {
        for _ in 0..count {
            let peer = Peer::silent(self.place, self.over_unix, self.target);
            self.idle.push(peer.expect("the server listens"));
        }
    }

    /// A connection that can carry one request more.
    fn ready_peer(&mut self) -> &mut Peer {
        if self.peer.as_ref().is_none_or(Peer::is_full) {
            if let Some(full) = self.peer.take() {
                full.leave();
            }
            self.connect("", "a sweep connects");
            assert_eq!(self.last, Outcome::Welcome, "a sweep connects");
        }
        self.peer.as_mut().expect("it was connected")
    }

    fn sweep(&mut self) {
        let mut sent = 0;
        for (_, request) in requests::of(kind_of(self.target)) {
            for field in request.fields() {
                let borders = request.clone().at(&field).map(|found| found.borders());
                for border in borders.unwrap_or_default() {
                    let mut hostile = request.clone();
                    *hostile.at(&field).expect("it has the field") = border;
                    if self.ready_peer().send(&hostile, Await::Turn) == Outcome::Closed {
                        self.peer = None;
                    }
                    sent += 1;
                }
            }
        }
        assert!(sent > 0);
        self.last = Outcome::Done;
    }

    fn cut(&mut self) {
        for (_, request) in requests::of(kind_of(self.target)) {
            let mut whole = Vec::new();
            request.encode(&mut whole);
            whole.push(0);
            for end in (0..whole.len() - 1).chain([whole.len()]) {
                let body = whole[..end].to_vec();
                let peer = self.ready_peer();
                let frame = peer.request(body);
                match peer.ask(&frame, Await::Answer) {
                    Outcome::Closed => self.peer = None,
                    Outcome::Done => panic!("{whole:02x?} cut to {end} bytes was taken"),
                    _ => {}
                }
            }
        }
        self.last = Outcome::Done;
    }
}

fn set_header(frame: &mut Frame, name: &str, value: u64) {
    let header = &mut frame.header;
    match name {
        "slot" => header.slot = value as u16,
        "xid" => header.xid = base::Xid(value),
        "session" => header.session = wire::frame::SessionId(value as u32),
        "epoch" => header.epoch = value as u32,
        "resent" => header.resent = value != 0,
        "replay" => header.replay = value != 0,
        "transno" => header.transno = base::Transno(value),
        "last_committed" => header.last_committed = base::Transno(value),
        "kind" => {
            use FrameKind::*;
            let kinds = [
                Request,
                Reply,
                Callback,
                CallbackReply,
                Handshake,
                Ping,
                Pong,
                Ready,
            ];
            let more = [Committed, Evicted, Goodbye];
            let mut all = kinds.into_iter().chain(more);
            let kind = all.nth(value as usize - 1);
            header.kind = kind.expect("there are eleven kinds");
        }
        other => panic!("a header has no {other}"),
    }
}

fn set_all(node: &mut Node, fields: &str, told: &str) {
    for (name, value) in settings(fields) {
        let found = node
            .at(name)
            .unwrap_or_else(|| panic!("{told}: no field {name}"));
        let number = |bits| number(value, bits);
        *found = match &*found {
            Node::Flag(_) => Node::Flag(number(8).expect(told) as u8),
            Node::Byte(_) => Node::Byte(number(8).expect(told) as u8),
            Node::Unsigned(_, bits) => Node::Unsigned(number(*bits).expect(told), *bits),
            Node::Signed(_, bits) => Node::Signed(number(*bits - 1).expect(told) as i128, *bits),
            Node::Bytes(_) => Node::Bytes(value.as_bytes().to_vec()),
            Node::Variant(_, parts) => Node::Variant(number(32).expect(told), parts.clone()),
            Node::List(all) => {
                let count = number(32).expect(told) as usize;
                Node::List(vec![all[0].clone(); count])
            }
            other => panic!("{told}: {name} is {other:?}"),
        };
    }
}

fn settings(text: &str) -> impl Iterator<Item = (&str, &str)> {
    let words = text.split_whitespace();
    words.map(|word| {
        word.split_once('=')
            .unwrap_or_else(|| panic!("{word:?} sets nothing"))
    })
}

/// As in `7`, `2^60`, `max`.
fn number(text: &str, bits: u32) -> Option<u128> {
    match text.split_once('^') {
        Some(("2", power)) => Some(1 << power.parse::<u32>().ok()?),
        None if text == "max" => Some((1u128 << bits) - 1),
        _ => text.parse().ok(),
    }
}

pub fn target_of(text: &str) -> TargetName {
    let (kind, index) = match text {
        "mgs" => (TargetKind::Mgs, 0),
        "mdt0" => (TargetKind::Mdt, 0),
        "ost0" => (TargetKind::Ost, 0),
        "ost9" => (TargetKind::Ost, 9),
        other => panic!("{other:?} is no target"),
    };
    TargetName {
        kind,
        index: TargetIndex(index),
    }
}

pub fn kind_of(target: TargetName) -> &'static str {
    match target.kind {
        TargetKind::Mgs => "mgs",
        TargetKind::Mdt => "mdt",
        TargetKind::Ost => "ost",
    }
}

fn who_of(text: &str) -> Who {
    match text {
        "client" => Who::Client,
        "server" => Who::Server,
        "stranger" => Who::Stranger,
        "climber" => Who::Climber,
        other => panic!("{other:?} is nobody"),
    }
}
