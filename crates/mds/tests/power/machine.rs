//! The metadata server's core on a disk whose power may fail at any write: what meets that ends
//! with [`Off`] instead of an answer.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use base::{ClientId, Fid, FsError, TargetIndex, Tick, Timestamp, Transno, Xid};
use layout::ObjectId;
use mds::store::tables;
use mds::watermarks::Acknowledged;
use mds::{Call, Mds, Output, Rules};
use rpc::Departure;
use storage::{Disk, Kv, KvOptions, Result, Ticket};
use wire::mdt::{Callback, CallbackReply, Reply, Request};

use super::picture::{Rows, rows};

pub type Answer = (std::result::Result<Reply, FsError>, Transno);

/// The slot of what clients send of themselves: locks they give back.
const OWN_SLOT: u16 = 63;
/// So often something is done for an answer before it is said never to come.
const PATIENCE: u32 = 200;

/// The power is off: no answer came, and none will.
#[derive(Debug)]
pub struct Off;

/// One boot of the server.
pub struct Machine {
    pub kv: Arc<Kv>,
    pub mds: Mds,
    pub tick: Tick,
    pub wall: Timestamp,
    /// Files whose removal an OST was told of: they are gone for good.
    pub gone: Vec<Fid>,
    /// What the store held after each change, where that is wanted.
    pub states: Option<BTreeMap<Transno, Rows>>,
    off: bool,
    tags: u64,
    answers: HashMap<u64, Answer>,
    questions: VecDeque<(ClientId, u64, Callback)>,
    removals: VecDeque<(TargetIndex, Vec<ObjectId>)>,
    searches: VecDeque<(TargetIndex, ObjectId)>,
    watermarks: VecDeque<(TargetIndex, Transno)>,
}

impl Machine {
    /// A server that starts on what `disk` holds.
    pub fn open(disk: impl Disk + 'static, tick: Tick, wall: Timestamp) -> Result<Machine> {
        let options = KvOptions::new("MDT0").manual();
        let kv = Arc::new(Kv::open(disk, &tables(), options)?);
        let mds = Mds::open(kv.clone(), Rules::default(), tick)?;
        Ok(Machine {
            kv,
            mds,
            tick,
            wall,
            gone: Vec::new(),
            states: None,
            off: false,
            tags: 0,
            answers: HashMap::new(),
            questions: VecDeque::new(),
            removals: VecDeque::new(),
            searches: VecDeque::new(),
            watermarks: VecDeque::new(),
        })
    }

    /// Sends one request of a frame; its tag.
    pub fn send(&mut self, client: u64, (slot, xid, index): Place, request: Request) -> u64 {
        let call = self.call(client, (slot, xid, index));
        let mut out = Vec::new();
        self.mds
            .handle(self.tick, self.wall, call, request, &mut out);
        self.take(out);
        call.tag
    }

    /// Does again what an earlier boot answered so.
    pub fn replay(
        &mut self,
        client: u64,
        place: Place,
        done: (Request, Reply),
    ) -> std::result::Result<Answer, Off> {
        let call = self.call(client, place);
        let mut out = Vec::new();
        self.mds.replay(self.tick, self.wall, call, done, &mut out);
        self.take(out);
        Ok(self.wait(vec![call.tag])?.remove(0))
    }

    fn call(&mut self, client: u64, (slot, xid, index): Place) -> Call {
        self.tags += 1;
        let (client, tag, xid) = (ClientId(client), self.tags, Xid(xid));
        Call {
            client,
            tag,
            slot,
            xid,
            index,
        }
    }

    /// The answers to `tags`: questions are answered as they come, and the disk is written when
    /// only that can help.
    pub fn wait(&mut self, tags: Vec<u64>) -> std::result::Result<Vec<Answer>, Off> {
        for _ in 0..PATIENCE {
            while let Some((client, id, callback)) = self.questions.pop_front() {
                self.answer(client, id, &callback);
            }
            if self.off {
                return Err(Off);
            }
            if tags.iter().all(|tag| self.answers.contains_key(tag)) {
                let answers = tags.iter().filter_map(|tag| self.answers.remove(tag));
                return Ok(answers.collect());
            }
            self.flush()?;
        }
        panic!("no answer");
    }

    fn answer(&mut self, client: ClientId, id: u64, callback: &Callback) {
        let reply = match callback {
            Callback::Glimpse { .. } => CallbackReply::Glimpse(None),
            _ => CallbackReply::Done,
        };
        let mut out = Vec::new();
        self.mds
            .callback_reply(self.tick, self.wall, client, id, reply, &mut out);
        self.take(out);
        if let Callback::Blocking { handle, .. } = callback {
            let handles = vec![*handle];
            self.send(client.0, (OWN_SLOT, id, 0), Request::Cancel { handles });
        }
    }

    /// Makes everything durable; OSTs do at once what they are told then.
    pub fn flush(&mut self) -> std::result::Result<(), Off> {
        let ticket: Ticket = self.kv.flush_once().map_err(|_| Off)?;
        let mut out = Vec::new();
        self.mds.durable(self.tick, self.wall, ticket, &mut out);
        self.take(out);
        while let Some((ost, objects)) = self.removals.pop_front() {
            let mut out = Vec::new();
            self.mds
                .destroyed(self.tick, self.wall, ost, &objects, &mut out);
            self.take(out);
        }
        while let Some(asked) = self.searches.pop_front() {
            let mut out = Vec::new();
            let nothing = (&[][..], None);
            self.mds
                .listed(self.tick, self.wall, asked, nothing, &mut out);
            self.take(out);
        }
        while let Some((ost, ours)) = self.watermarks.pop_front() {
            let mut out = Vec::new();
            // They have nothing: no change follows that is nobody's request.
            let (now, committed) = ((self.tick, self.wall), Transno(0));
            self.mds
                .watermark_heard(now, ost, Acknowledged { ours, committed }, &mut out);
            self.take(out);
        }
        Ok(())
    }

    /// Time passes.
    pub fn pass(&mut self, time: Duration) {
        self.tick = self.tick.after(time);
        let mut out = Vec::new();
        self.mds.tick(self.tick, self.wall, &mut out);
        self.take(out);
    }

    /// A client has said all that it knows to be lost.
    pub fn ready(&mut self, client: u64) {
        let mut out = Vec::new();
        self.mds
            .ready_again(self.tick, self.wall, ClientId(client), &mut out);
        self.take(out);
    }

    /// The server gives up on a client.
    pub fn evict(&mut self, client: u64) {
        let (mut out, who) = (Vec::new(), (ClientId(client), Departure::GivenUp));
        self.mds.end_session(self.tick, self.wall, who, &mut out);
        self.take(out);
    }

    fn take(&mut self, out: Vec<Output>) {
        for output in out {
            match output {
                Output::Reply {
                    tag,
                    result,
                    transno,
                    ..
                } => {
                    self.answers.insert(tag, (result, transno));
                }
                Output::Callback {
                    client,
                    id,
                    callback,
                } => self.questions.push_back((client, id, callback)),
                Output::Destroy { ost, objects, .. } => {
                    self.gone
                        .extend(objects.iter().map(|(object, _)| object.fid));
                    let objects = objects.into_iter().map(|(object, _)| object).collect();
                    self.removals.push_back((ost, objects));
                }
                Output::List { ost, from, .. } => self.searches.push_back((ost, from)),
                Output::Watermark { ost, watermark, .. } => {
                    self.watermarks.push_back((ost, watermark.committed));
                }
                Output::Halt(_) => self.off = true,
                Output::Evict { .. } | Output::GoOn => {}
            }
        }
        if let Some(mut states) = self.states.take() {
            let transno = self.mds.last_transno();
            states
                .entry(transno)
                .or_insert_with(|| rows(self.mds.store()));
            self.states = Some(states);
        }
    }
}

/// Slot, xid and index of a request.
pub type Place = (u16, u64, u16);
