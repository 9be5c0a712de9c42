//! The server around the table: the truth, and the operations that change it.

use std::collections::BTreeMap;

use base::{ClientId, Rng, SeededRng, Tick, Xid};
use dlm::{
    Bits, CacheInput, ContentionRule, Cover, Glimpsed, Grant, Input, Limits, LockTable, Mode, OpId,
    Output, Release, ResourceId, TryGrant, Want,
};

use crate::cluster::Tally;
use crate::message::{
    ATTRIBUTES, CHILDREN, Reply, Request, ToClient, ToServer, child, directory, file, inode,
};

type Check = Result<(), String>;

/// An operation begun and not ended.
struct Operation {
    client: ClientId,
    request: u64,
    what: Request,
    /// The answers to its glimpses, once it may run.
    ready: Option<Vec<Glimpsed>>,
    /// For a glimpse: what others had written to each block when it began.
    floor: BTreeMap<u64, u64>,
}

/// A request that was heard and is not over: for fairness, in the order of arrival.
struct Arrival {
    party: Party,
    wants: Vec<Want>,
    served: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Party {
    Op(OpId),
    Lock(ClientId, u64),
}

/// The truth, the table, and what runs.
pub struct Server {
    pub table: LockTable,
    pub now: Tick,
    /// Each attribute of each inode.
    pub attributes: BTreeMap<(u64, Bits), u64>,
    /// Each child's attributes.
    pub children: BTreeMap<(u64, u64), u64>,
    /// Each directory's set of names.
    pub lists: BTreeMap<u64, u64>,
    /// Each block as far as it was written back.
    pub stored: BTreeMap<(u64, u64), u64>,
    /// Each block as its last writer left it.
    pub latest: BTreeMap<(u64, u64), u64>,
    /// Who that was.
    pub writers: BTreeMap<(u64, u64), ClientId>,
    operations: BTreeMap<OpId, Operation>,
    arrivals: Vec<Arrival>,
    next_op: u64,
    /// What the clients are to be told.
    pub sent: Vec<(ClientId, ToClient)>,
    pub tally: Tally,
    /// Print everything that happens.
    trace: bool,
}

fn clash(a: &Want, b: &Want) -> bool {
    match (a, b) {
        (
            Want::Lock {
                resource,
                mode,
                cover,
            },
            Want::Lock {
                resource: on,
                mode: other,
                cover: part,
            },
        ) => resource == on && !mode.compatible(*other) && cover.overlaps(*part),
        (
            Want::Name {
                resource,
                hash,
                mode,
            },
            Want::Name {
                resource: on,
                hash: name,
                mode: other,
            },
        ) => (resource, hash) == (on, name) && !mode.compatible(*other),
        _ => false,
    }
}

impl Server {
    pub fn new() -> Server {
        let contention = |max| ContentionRule {
            max,
            ..Limits::default().lease_contention
        };
        let limits = Limits {
            lease_withdrawn: 3,
            lease_contention: contention(10),
            extent_contention: contention(6),
            locks_per_client: 40,
            ..Limits::default()
        };
        Server {
            table: LockTable::new(limits),
            now: Tick::default(),
            attributes: BTreeMap::new(),
            children: BTreeMap::new(),
            lists: BTreeMap::new(),
            stored: BTreeMap::new(),
            latest: BTreeMap::new(),
            writers: BTreeMap::new(),
            operations: BTreeMap::new(),
            arrivals: Vec::new(),
            next_op: 0,
            sent: Vec::new(),
            tally: Tally::default(),
            trace: std::env::var_os("DLM_TRACE").is_some(),
        }
    }

    /// One line of the trace that `DLM_TRACE` asks for.
    pub fn note(&self, what: impl FnOnce() -> String) {
        if self.trace {
            println!("{}", what());
        }
    }

    fn step(&mut self, input: Input) -> Check {
        self.note(|| format!("table <- {input:?}"));
        let mut out = Vec::new();
        self.table.step(self.now, input, &mut out);
        out.into_iter().try_for_each(|output| self.said(output))
    }

    fn said(&mut self, output: Output) -> Check {
        self.note(|| format!("table -> {output:?}"));
        match output {
            Output::Granted {
                client,
                request,
                grant,
            } => {
                self.served(Party::Lock(client, request.0))?;
                self.forget(Party::Lock(client, request.0));
                self.tally.granted += 1;
                self.sent
                    .push((client, ToClient::Granted(request.0, grant)));
            }
            Output::Refused {
                client, request, ..
            } => {
                self.forget(Party::Lock(client, request.0));
                self.reply(client, request.0, Reply::Refused);
            }
            Output::Ready { op, glimpses, .. } => {
                self.served(Party::Op(op))?;
                let operation = self
                    .operations
                    .get_mut(&op)
                    .ok_or("an unknown operation is ready")?;
                operation.ready = Some(glimpses);
            }
            Output::OpRefused { op } => {
                self.forget(Party::Op(op));
                if let Some(operation) = self.operations.remove(&op) {
                    self.reply(operation.client, operation.request, Reply::Refused);
                }
            }
            Output::Aborted { op } => {
                self.forget(Party::Op(op));
                self.operations.remove(&op);
            }
            Output::Blocking {
                client,
                handle,
                mode,
                cover,
                ..
            } => {
                self.tally.blocking += 1;
                self.call(
                    client,
                    CacheInput::Blocking {
                        handle,
                        mode,
                        cover,
                    },
                );
            }
            Output::Withdraw {
                client,
                handle,
                key,
                bits,
                version,
                ..
            } => {
                self.tally.withdrawn += 1;
                self.call(
                    client,
                    CacheInput::Withdraw {
                        handle,
                        key,
                        bits,
                        version,
                    },
                );
            }
            Output::Glimpse {
                client,
                handle,
                resource,
            } => {
                self.tally.glimpsed += 1;
                self.sent
                    .push((client, ToClient::Glimpse(handle, resource)));
            }
            Output::Tell { client, .. } => return Err(format!("nobody told {client} anything")),
            Output::ShrinkYourLocks { client } => self.call(client, CacheInput::Shrink),
            Output::EvictionDue { client } => return Err(format!("{client} did not answer")),
            Output::Misuse { client, reason } => return Err(format!("{client}: {reason}")),
        }
        Ok(())
    }

    fn call(&mut self, client: ClientId, callback: CacheInput) {
        self.sent.push((client, ToClient::Callback(callback)));
    }

    fn reply(&mut self, client: ClientId, request: u64, reply: Reply) {
        let version = self.table.version();
        self.sent
            .push((client, ToClient::Reply(request, version, reply)));
    }

    /// No earlier request that conflicts with this one may still be waiting.
    fn served(&mut self, party: Party) -> Check {
        let place = self
            .arrivals
            .iter()
            .position(|arrival| arrival.party == party);
        let place = place.ok_or_else(|| format!("{party:?} is served without having asked"))?;
        let (earlier, rest) = self.arrivals.split_at_mut(place);
        let wants = &rest[0].wants;
        let waits = |arrival: &&Arrival| {
            let clashes = |want: &Want| wants.iter().any(|other| clash(want, other));
            !arrival.served && arrival.wants.iter().any(clashes)
        };
        if let Some(other) = earlier.iter().find(waits) {
            return Err(format!("{party:?} overtook {:?}", other.party));
        }
        rest[0].served = true;
        Ok(())
    }

    fn forget(&mut self, party: Party) {
        self.arrivals.retain(|arrival| arrival.party != party);
    }

    /// A message from a client.
    pub fn hear(&mut self, client: ClientId, message: ToServer) -> Check {
        match message {
            ToServer::Request(request, what) => self.request(client, request, what),
            ToServer::Values(handle, value) => {
                let value = value.to_le_bytes().to_vec();
                self.step(Input::GlimpseReply {
                    client,
                    handle,
                    value,
                })
            }
            ToServer::Abandon(request) => {
                self.forget(Party::Lock(client, request));
                self.step(Input::Abandon {
                    client,
                    request: Xid(request),
                })
            }
            ToServer::Release(Release::Cancel(handle)) => self.step(Input::Cancel {
                client,
                handles: vec![handle],
            }),
            ToServer::Release(Release::Convert(handle, keep)) => {
                self.tally.converted += 1;
                self.step(Input::Convert {
                    client,
                    handle,
                    keep,
                })
            }
            ToServer::Release(Release::WithdrawAck(handle, version)) => {
                self.step(Input::WithdrawAck {
                    client,
                    handle,
                    version,
                })
            }
        }
    }

    fn request(&mut self, client: ClientId, request: u64, what: Request) -> Check {
        if let Request::Lock(resource, mode, kind) = what {
            let cover = match kind {
                dlm::Kind::Inode { bits, .. } => Cover::Bits(bits),
                dlm::Kind::Extent { range } => Cover::Range(range),
            };
            let party = Party::Lock(client, request);
            let wants = vec![Want::Lock {
                resource,
                mode,
                cover,
            }];
            self.arrivals.push(Arrival {
                party,
                wants,
                served: false,
            });
            let request = Xid(request);
            return self.step(Input::Enqueue {
                client,
                request,
                resource,
                mode,
                kind,
                nonblock: false,
            });
        }
        let wants = wants_of(&what);
        self.next_op += 1;
        let op = OpId(self.next_op);
        let floor = match what {
            Request::Glimpse(id) => self.written_by_others(id, client),
            _ => BTreeMap::new(),
        };
        let operation = Operation {
            client,
            request,
            what,
            ready: None,
            floor,
        };
        self.operations.insert(op, operation);
        let arrival = Arrival {
            party: Party::Op(op),
            wants: wants.clone(),
            served: false,
        };
        self.arrivals.push(arrival);
        self.step(Input::Begin {
            op,
            client: Some(client),
            wants,
        })
    }

    /// The blocks of a file that others wrote last: a client knows its own.
    fn written_by_others(&self, id: u64, client: ClientId) -> BTreeMap<u64, u64> {
        let others = self.latest.iter().filter(|(place, _)| {
            place.0 == id
                && self
                    .writers
                    .get(place)
                    .is_some_and(|writer| *writer != client)
        });
        others.map(|((_, block), value)| (*block, *value)).collect()
    }

    /// Runs one operation that is ready; false if none is.
    pub fn run_one(&mut self, rng: &mut SeededRng) -> Result<bool, String> {
        let ready = self
            .operations
            .iter()
            .filter(|(_, operation)| operation.ready.is_some());
        let ready: Vec<OpId> = ready.map(|(op, _)| *op).collect();
        if ready.is_empty() {
            return Ok(false);
        }
        let op = ready[rng.below(ready.len() as u64) as usize];
        self.run(op)?;
        Ok(true)
    }

    fn run(&mut self, op: OpId) -> Check {
        let Some(operation) = self.operations.remove(&op) else {
            return Ok(());
        };
        self.tally.operations += 1;
        self.note(|| format!("{op:?} of {} runs", operation.client));
        let Operation {
            client,
            request,
            what,
            ready,
            floor,
        } = operation;
        let (ask, version) = (Ask { op, client }, self.table.version());
        let reply = match what {
            Request::GetAttr(id) => {
                let grant = self.grant(ask, inode(id), Bits::LOOKUP, Bits::UPDATE | Bits::PERM);
                Reply::Attributes(id, self.attributes_of(id), grant)
            }
            Request::GetAttrLocked(id, bits) => {
                let grant = self.grant(ask, inode(id), bits, Bits::NONE);
                Reply::Attributes(id, self.attributes_of(id), grant)
            }
            Request::SetAttr(id, bits) => {
                let value = self.attributes.entry((id, bits)).or_default();
                *value += 1;
                Reply::Changed(id, bits, *value)
            }
            Request::ReadDir(id, lease) => {
                let (all, some) = (Bits::NAMES, Bits::LIST | Bits::CHILD);
                let (grant, readmitted) = match lease {
                    None => (self.grant(ask, directory(id), all, some), None),
                    Some(lease) => (
                        None,
                        self.table
                            .readmit(Some(op), client, lease, None, Bits::LIST),
                    ),
                };
                let children = (0..CHILDREN)
                    .map(|key| (key, self.child(id, key)))
                    .collect();
                let list = self.lists.get(&id).copied().unwrap_or(0);
                Reply::Page(id, children, list, grant, readmitted)
            }
            Request::LookupChild(id, key, lease) => {
                let readmitted = lease.and_then(|lease| {
                    self.table
                        .readmit(Some(op), client, lease, Some(key), Bits::CHILD)
                });
                Reply::Child(id, key, self.child(id, key), readmitted)
            }
            Request::SetChild(id, key, lease) => {
                *self.children.entry((id, key)).or_default() += 1;
                let readmitted = lease.and_then(|lease| {
                    self.table
                        .readmit(Some(op), client, lease, Some(key), Bits::CHILD)
                });
                Reply::ChildChanged(id, key, self.child(id, key), readmitted)
            }
            Request::Create(id, _) => {
                let list = self.lists.entry(id).or_default();
                *list += 1;
                Reply::Created(id, *list)
            }
            Request::Glimpse(id) => {
                self.check_glimpse(id, &floor, &ready.unwrap_or_default())?;
                Reply::Glimpsed
            }
            Request::Lock(..) => return Err("a lock request became an operation".into()),
        };
        // Reads carry the version after their grants, changes the one that is announced.
        let changes = matches!(
            reply,
            Reply::Changed(..) | Reply::ChildChanged(..) | Reply::Created(..)
        );
        if changes {
            self.table.announce(op);
        }
        if self.table.version() < version {
            return Err("the version went back".into());
        }
        self.tally.readmitted += u64::from(matches!(
            reply,
            Reply::Child(.., Some(_)) | Reply::ChildChanged(.., Some(_))
        ));
        self.reply(client, request, reply);
        self.forget(Party::Op(op));
        self.step(Input::End { op })
    }

    fn check_glimpse(&self, id: u64, floor: &BTreeMap<u64, u64>, answers: &[Glimpsed]) -> Check {
        let stored = self.stored.iter().filter(|((of, _), _)| *of == id);
        let stored = stored.map(|(_, value)| *value).max().unwrap_or(0);
        let said = answers.iter().map(|answer| {
            let mut bytes = [0; 8];
            bytes.copy_from_slice(&answer.value);
            u64::from_le_bytes(bytes)
        });
        let seen = said.max().unwrap_or(0).max(stored);
        let floor = floor.values().copied().max().unwrap_or(0);
        match floor <= seen {
            true => Ok(()),
            false => Err(format!("a glimpse of {id} saw {seen}, not {floor}")),
        }
    }

    fn grant(
        &mut self,
        ask: Ask,
        resource: ResourceId,
        required: Bits,
        optional: Bits,
    ) -> Option<Grant> {
        let mode = Mode::PR;
        let ask = TryGrant {
            op: Some(ask.op),
            client: ask.client,
            resource,
            mode,
        };
        let grant = self.table.try_grant(self.now, ask, required, optional);
        self.tally.granted_at_once += u64::from(grant.is_some());
        grant
    }

    fn attributes_of(&self, id: u64) -> Vec<(Bits, u64)> {
        let value = |bits: &Bits| self.attributes.get(&(id, *bits)).copied().unwrap_or(0);
        ATTRIBUTES.iter().map(|bits| (*bits, value(bits))).collect()
    }

    pub fn child(&self, id: u64, key: u64) -> u64 {
        self.children.get(&(id, key)).copied().unwrap_or(0)
    }

    /// An operation of somebody else that may run now contradicts the use of `cover` in `mode`.
    pub fn contradicts(&self, client: ClientId, used: &Want) -> Option<OpId> {
        let runs = self
            .operations
            .iter()
            .filter(|(_, operation)| operation.ready.is_some());
        let mut others = runs.filter(|(_, operation)| operation.client != client);
        others
            .find(|(_, operation)| {
                wants_of(&operation.what)
                    .iter()
                    .any(|want| clash(want, used))
            })
            .map(|(op, _)| *op)
    }

    /// The client is gone, with all it asked for.
    pub fn evict(&mut self, client: ClientId) -> Check {
        self.tally.evicted += 1;
        self.arrivals
            .retain(|arrival| !matches!(arrival.party, Party::Lock(of, _) if of == client));
        // What was lost with the client need not be seen.
        for operation in self.operations.values_mut() {
            if let Request::Glimpse(id) = operation.what {
                for (block, floor) in &mut operation.floor {
                    *floor = self
                        .latest
                        .get(&(id, *block))
                        .copied()
                        .unwrap_or(0)
                        .min(*floor);
                }
            }
        }
        self.step(Input::Evict { client })?;
        let own = self
            .operations
            .iter()
            .filter(|(_, operation)| operation.client == client);
        for op in own.map(|(op, _)| *op).collect::<Vec<_>>() {
            self.operations.remove(&op);
            self.forget(Party::Op(op));
            self.step(Input::Abort { op })?;
        }
        Ok(())
    }

    pub fn tick(&mut self) -> Check {
        self.step(Input::Tick)
    }

    /// Everything that was asked for was answered.
    pub fn is_done(&self) -> Check {
        let waiting: Vec<&Party> = self.arrivals.iter().map(|arrival| &arrival.party).collect();
        match waiting.is_empty() && self.table.waiting_count() == 0 {
            true => Ok(()),
            false => Err(format!("never served: {waiting:?}")),
        }
    }
}

#[derive(Clone, Copy)]
struct Ask {
    op: OpId,
    client: ClientId,
}

fn wants_of(what: &Request) -> Vec<Want> {
    match what {
        Request::GetAttrLocked(id, bits) => vec![Want::bits(inode(*id), Mode::PR, *bits)],
        Request::SetAttr(id, bits) => vec![Want::bits(inode(*id), Mode::PW, *bits)],
        Request::SetChild(id, key, _) => vec![
            Want::bits(child(*id, *key), Mode::PW, Bits::UPDATE),
            Want::Withdraw {
                resource: directory(*id),
                bits: Bits::CHILD,
                key: *key,
            },
        ],
        Request::Create(id, key) => vec![
            Want::Name {
                resource: directory(*id),
                hash: *key,
                mode: Mode::PW,
            },
            Want::Withdraw {
                resource: directory(*id),
                bits: Bits::NAMES | Bits::LIST,
                key: *key,
            },
        ],
        Request::Glimpse(id) => {
            vec![Want::GlimpseExtent {
                resource: file(*id),
                speculative: false,
            }]
        }
        _ => Vec::new(),
    }
}
