//! What clients do, and what they remember of it while servers come and go.

use std::collections::{BTreeMap, BTreeSet};

use base::{BootEpoch, ClientId, Fid, FsError, LockHandle, Transno};
use mds::GRACE;
use rpc::window::RECOVERY_WINDOW;
use wire::mdt::{Access, OpenHandle, OpenIntent, Reply, Request, SetAttr};

use super::machine::{Answer, Machine, Off, Place};
use super::picture::state;

/// What a client does next.
#[derive(Debug, Clone)]
pub enum Step {
    /// Sends a frame and gets its answers.
    Frame(u64, Vec<Request>),
    /// The same; the answers promise that what they tell of is durable.
    Durable(u64, Vec<Request>),
    /// Sees, in an answer, what another one did last.
    Look(u64, Request),
    /// Closes what it has open of a file.
    Close(u64, Fid, SetAttr),
    /// Waits until all is durable.
    Sync(u64),
    /// Nobody waits, but the server's disk is written.
    Commit,
    /// The server gives up on the client.
    Evict(u64),
}

/// A change that a client was answered, and may have to do again.
#[derive(Debug, Clone)]
struct Done {
    client: u64,
    place: Place,
    request: Request,
    reply: Reply,
    /// The server's boot that made it, and its number in that boot.
    boot_epoch: BootEpoch,
    transno: Transno,
}

/// All clients of a scenario, and their memory.
#[derive(Debug, Clone)]
pub struct Users {
    clients: Vec<u64>,
    done: Vec<Done>,
    opens: BTreeMap<(u64, Fid), (OpenHandle, Access)>,
    /// The write leases of each client.
    leases: BTreeMap<(u64, Fid), LockHandle>,
    /// The step to do next, or under way.
    next: usize,
    /// When the script began, in seconds.
    began: i64,
    /// How often steps were begun.
    begun: u64,
    /// Whether the step under way was begun by an earlier boot.
    resent: bool,
    /// Everything up to here was promised to be durable.
    pub told: Transno,
    /// Nothing was done beyond.
    pub sent: Transno,
    /// Files that an OST was told to remove.
    pub gone: Vec<Fid>,
    /// Of what they open anew.
    xids: u64,
}

/// So many changes are done again with a write of the disk after each; of more, so many share one.
const ALONE: usize = 4;
const TOGETHER: usize = 16;
/// The slot in which files are opened anew.
const OPENING_SLOT: u16 = 50;

/// Who looks on as requests are done, in the order of their changes.
pub type Watch<'a> = &'a mut dyn FnMut(&Request, Transno);

impl Users {
    pub fn new(clients: &[u64]) -> Users {
        Users {
            clients: clients.to_vec(),
            done: Vec::new(),
            opens: BTreeMap::new(),
            leases: BTreeMap::new(),
            next: 0,
            began: 10_000,
            begun: 0,
            resent: false,
            told: Transno(0),
            sent: Transno(0),
            gone: Vec::new(),
            xids: 0,
        }
    }

    /// They begin another script.
    pub fn begin(&mut self) {
        self.next = 0;
        self.resent = false;
        self.began += 1000;
    }

    /// A server lives: all connect, do again what was lost, tell what they have open. The disk is
    /// written after each of that. Those in `absent` do not come.
    pub fn return_to(&mut self, machine: &mut Machine, absent: &[u64]) -> Result<(), Off> {
        let returned = self.try_return_to(machine, absent);
        self.learn(machine);
        returned
    }

    fn try_return_to(&mut self, machine: &mut Machine, absent: &[u64]) -> Result<(), Off> {
        let clients: Vec<u64> = self.clients.clone();
        let here = || clients.iter().filter(|client| !absent.contains(client));
        for client in here() {
            machine
                .mds
                .connect(ClientId(*client), [*client as u8; 16])
                .expect("readable");
        }
        self.keep_lost(machine);
        let boot_epoch = life_of(machine);
        for at in 0..self.done.len() {
            let done = self.done[at].clone();
            if absent.contains(&done.client) {
                continue;
            }
            let what = (done.request.clone(), done.reply);
            let (result, transno) = machine.replay(done.client, done.place, what)?;
            assert!(result.is_ok(), "{:?}: {result:?}", done.request);
            (self.done[at].boot_epoch, self.done[at].transno) = (boot_epoch, transno);
            self.learn(machine);
            if at < ALONE || at.is_multiple_of(TOGETHER) {
                machine.flush()?;
            }
        }
        for ((client, fid), (handle, access)) in &mut self.opens {
            if absent.contains(client) {
                continue;
            }
            let (dir, access) = (Fid::NONE, *access);
            self.xids += 1;
            let (fid, place) = (*fid, (OPENING_SLOT, self.xids, 0));
            let open = Request::Open {
                fid,
                dir,
                access,
                intent: OpenIntent::Reopen,
            };
            let tag = machine.send(*client, place, open);
            match machine.wait(vec![tag])?.remove(0) {
                (Ok(Reply::Opened { handle: new, .. }), _) => *handle = new,
                other => panic!("{fid} was open: {other:?}"),
            }
            machine.flush()?;
        }
        self.claim(machine, absent)?;
        for client in here() {
            machine.ready(*client);
            machine.flush()?;
        }
        if !absent.is_empty() {
            machine.pass(RECOVERY_WINDOW);
            machine.flush()?;
        }
        Ok(())
    }

    /// Claims write leases, of directories that are there.
    fn claim(&mut self, machine: &mut Machine, absent: &[u64]) -> Result<(), Off> {
        let held = std::mem::take(&mut self.leases);
        for ((client, dir), _) in held {
            if absent.contains(&client) {
                continue;
            }
            self.xids += 1;
            let place = (OPENING_SLOT, self.xids, 0);
            let tag = machine.send(client, place, Request::ReclaimLease { dir });
            match machine.wait(vec![tag])?.remove(0).0 {
                Ok(Reply::WriteLease {
                    grant: Some(grant), ..
                }) => {
                    self.leases.insert((client, dir), grant.handle);
                }
                // Its client has removed it, or the frame that makes it is yet to be sent again.
                Err(FsError::Stale | FsError::NotFound) => {}
                other => panic!("{dir} was its own: {other:?}"),
            }
            machine.flush()?;
        }
        Ok(())
    }

    /// Forgets the frames of which all is durable.
    fn keep_lost(&mut self, machine: &Machine) {
        let survived = |boot_epoch| machine.mds.survived(boot_epoch).expect("readable");
        let frame = |done: &Done| (done.client, done.place.0, done.place.1);
        let lost: BTreeSet<_> = self
            .done
            .iter()
            .filter(|done| done.transno > survived(done.boot_epoch))
            .map(frame)
            .collect();
        self.done.retain(|done| lost.contains(&frame(done)));
    }

    /// Does the rest of `script`.
    pub fn go_on(
        &mut self,
        machine: &mut Machine,
        script: &[Step],
        watch: Watch<'_>,
    ) -> Result<(), Off> {
        while let Some(step) = script.get(self.next) {
            // A step has the same time however often it is done.
            machine.wall.secs = self.began + self.next as i64;
            let done = self.step(machine, step, watch);
            self.learn(machine);
            self.resent = done.is_err();
            done?;
            self.next += 1;
        }
        Ok(())
    }

    /// What every frame from a server tells.
    fn learn(&mut self, machine: &Machine) {
        self.told = self.told.max(machine.mds.last_committed());
        self.sent = self.sent.max(machine.mds.last_transno());
        self.gone.extend(&machine.gone);
    }

    fn step(&mut self, machine: &mut Machine, step: &Step, watch: Watch<'_>) -> Result<(), Off> {
        match step {
            Step::Frame(client, requests) => {
                self.frame(machine, *client, requests, watch).map(drop)
            }
            Step::Durable(client, requests) => {
                let last = self.frame(machine, *client, requests, watch)?;
                self.told = self.told.max(last);
                Ok(())
            }
            Step::Look(client, request) => {
                let seen = machine.mds.last_transno();
                self.frame(machine, *client, std::slice::from_ref(request), watch)?;
                self.told = self.told.max(seen);
                Ok(())
            }
            Step::Close(client, fid, change) => self.close(machine, *client, *fid, change, watch),
            Step::Sync(client) => {
                let sent = machine.mds.last_transno();
                self.frame(machine, *client, &[Request::Sync], watch)?;
                self.told = self.told.max(sent);
                Ok(())
            }
            Step::Commit => machine.flush(),
            Step::Evict(client) => {
                machine.evict(*client);
                self.opens.retain(|(whose, _), _| whose != client);
                self.leases.retain(|(whose, _), _| whose != client);
                machine.flush()
            }
        }
    }

    /// A frame that is sent again has its slot and xid again. Says the last change it made.
    fn frame(
        &mut self,
        machine: &mut Machine,
        client: u64,
        requests: &[Request],
        watch: Watch<'_>,
    ) -> Result<Transno, Off> {
        if !self.resent {
            self.begun += 1;
        }
        let (slot, xid) = ((self.begun % 4) as u16, self.begun);
        let place = |index: usize| (slot, xid, index as u16);
        self.lease(machine, client, requests);
        let indexed = requests.iter().cloned().enumerate();
        let tags = indexed
            .map(|(index, request)| machine.send(client, place(index), request))
            .collect();
        let answers = machine.wait(tags)?;
        let mut last = Transno(0);
        for (index, (request, answer)) in requests.iter().zip(answers).enumerate() {
            last = last.max(answer.1);
            self.note(machine, (client, place(index)), request, answer, watch);
        }
        Ok(last)
    }

    /// Gives a client the write leases under which it sends sets, if it has not claimed them. A machine that
    /// is off gives none.
    fn lease(&mut self, machine: &mut Machine, client: u64, requests: &[Request]) {
        let sets = requests.iter().filter_map(|request| match request {
            Request::Update { dirs, .. } => Some(dirs),
            _ => None,
        });
        for leased in sets.flatten() {
            let (dir, id) = (leased.dir, ClientId(client));
            let mut given = machine.mds.try_write_lease(None, id, dir);
            if !self.leases.contains_key(&(client, dir)) && !matches!(given, Ok(Some(_))) {
                machine.pass(GRACE + GRACE / 8);
                given = machine.mds.try_write_lease(None, id, dir);
            }
            if let Ok(Some(grant)) = given {
                self.leases.insert((client, dir), grant.handle);
            }
        }
    }

    fn note(
        &mut self,
        machine: &Machine,
        (client, place): (u64, Place),
        request: &Request,
        (result, transno): Answer,
        watch: Watch<'_>,
    ) {
        let reply = result.unwrap_or_else(|error| panic!("{request:?}: {error}"));
        watch(request, transno);
        match (request, &reply) {
            (
                Request::Create {
                    open: Some(access), ..
                },
                Reply::Created { node, handle, .. },
            )
            | (Request::Open { access, .. }, Reply::Opened { node, handle, .. }) => {
                self.opens.insert((client, node.fid), (*handle, *access));
            }
            _ => {}
        }
        if transno > Transno(0) {
            self.done.push(Done {
                client,
                place,
                request: request.clone(),
                reply,
                boot_epoch: life_of(machine),
                transno,
            });
        }
    }

    /// Handles of an earlier boot are void: a close that it did not answer is another request now.
    fn close(
        &mut self,
        machine: &mut Machine,
        client: u64,
        fid: Fid,
        change: &SetAttr,
        watch: Watch<'_>,
    ) -> Result<(), Off> {
        self.resent = false;
        let (handle, _) = self.opens[&(client, fid)];
        let request = Request::Close {
            fid,
            dir: Fid::NONE,
            handle,
            change: change.clone(),
            under: LockHandle(0),
        };
        self.frame(machine, client, &[request], watch)?;
        self.opens.remove(&(client, fid));
        Ok(())
    }
}

fn life_of(machine: &Machine) -> BootEpoch {
    BootEpoch(u64::from(state(machine.mds.store()).boots))
}

/// What time brings about of itself: orphans that nobody has open go, OSTs remove objects.
pub fn settle(machine: &mut Machine) -> Result<(), Off> {
    for _ in 0..3 {
        machine.flush()?;
        machine.pass(GRACE + GRACE / 8);
    }
    machine.flush()
}
