//! A lock table and its clients behind a small command language.

mod parse;
mod trace;

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use base::{ClientId, LockHandle, Tick};
use dlm::{
    CacheInput, CacheLimits, CacheOutput, Grant, Input, Limits, LockCache, LockTable, OpId, Output,
    Release, TryGrant,
};

use parse::Words;
use trace::Names;

/// What a command says.
type Said = Result<Vec<String>, String>;

/// One table, the clients that joined, and the names given to lock handles.
#[derive(Default)]
pub struct World {
    now: Tick,
    table: LockTable,
    clients: BTreeMap<ClientId, Mount>,
    names: Names,
}

/// A client with a cache, and what the server said to it that has not been delivered.
#[derive(Default)]
struct Mount {
    cache: LockCache,
    mailbox: VecDeque<CacheInput>,
}

impl World {
    /// Runs one command and audits everything after it.
    pub fn run(&mut self, command: &str) -> Said {
        let mut words = Words::new(command);
        let verb = words.next()?;
        let said = match verb {
            "limits" => self.limits(&mut words),
            "client" => self.join(&mut words),
            "tick" => self.tick(&mut words),
            "try" => self.try_grant(&mut words),
            "readmit" => self.readmit(&mut words),
            "announce" => {
                let op = OpId(words.number()?);
                Ok(vec![format!("v{}", self.table.announce(op))])
            }
            "holds" => {
                let (client, handle) = (words.client()?, self.names.handle(words.next()?)?);
                let lock = self.table.holds(client, handle);
                Ok(vec![lock.map_or("no".into(), |lock| {
                    format!("{} {}", lock.mode, lock.cover)
                })])
            }
            "state" => Ok(vec![format!(
                "locks {} resources {} waiting {} callbacks {}",
                self.table.lock_count(),
                self.table.resource_count(),
                self.table.waiting_count(),
                self.table.callback_count()
            )]),
            _ if verb.len() == 1 => self.client_command(parse::client(verb)?, &mut words),
            _ => {
                let input = parse::input(verb, &mut words, &self.names)?;
                Ok(self.server(input))
            }
        }?;
        words.end()?;
        self.table.audit().map_err(|why| format!("table: {why}"))?;
        for (client, mount) in &self.clients {
            mount
                .cache
                .audit()
                .map_err(|why| format!("cache of {client}: {why}"))?;
        }
        Ok(said)
    }

    fn limits(&mut self, words: &mut Words) -> Said {
        let mut limits = Limits::default();
        while let Some((name, value)) = words.setting()? {
            match name {
                "locks_per_client" => limits.locks_per_client = value,
                "waiting" => limits.waiting = value,
                "waiting_per_client" => limits.waiting_per_client = value,
                "lease_withdrawn" => limits.lease_withdrawn = value,
                "lease_contention" => limits.lease_contention.max = value,
                "extent_contention" => limits.extent_contention.max = value,
                _ => return Err(format!("no limit {name}")),
            }
        }
        self.table = LockTable::new(limits);
        Ok(Vec::new())
    }

    fn join(&mut self, words: &mut Words) -> Said {
        let client = words.client()?;
        let mut limits = CacheLimits::default();
        while let Some((name, value)) = words.setting()? {
            match name {
                "lru_max" => limits.lru_max = value,
                "batch" => limits.batch = value,
                "early_max" => limits.early_max = value,
                "age_max" => limits.age_max = Duration::from_secs(value as u64),
                _ => return Err(format!("no limit {name}")),
            }
        }
        let cache = LockCache::new(limits);
        self.clients.insert(
            client,
            Mount {
                cache,
                mailbox: VecDeque::new(),
            },
        );
        Ok(Vec::new())
    }

    fn tick(&mut self, words: &mut Words) -> Said {
        self.now = self.now.after(Duration::from_secs(words.seconds()?));
        let mut said = self.server(Input::Tick);
        for client in self.clients.keys().copied().collect::<Vec<_>>() {
            said.extend(self.cache(client, CacheInput::Tick)?);
        }
        Ok(said)
    }

    /// A grant inside an operation, or by itself: `try A r1 PR LOOKUP try XATTR op 1`.
    fn try_grant(&mut self, words: &mut Words) -> Said {
        let (client, resource, mode) = (words.client()?, words.resource()?, words.mode()?);
        let cover = words.cover()?;
        let optional = words
            .option("try")?
            .map_or(Ok(dlm::Bits::NONE), parse::bits)?;
        let op = words
            .option("op")?
            .map(parse::number)
            .transpose()?
            .map(OpId);
        let ask = TryGrant {
            op,
            client,
            resource,
            mode,
        };
        let grant = match cover {
            dlm::Cover::Bits(bits) => self.table.try_grant(self.now, ask, bits, optional),
            dlm::Cover::Range(range) => self.table.try_grant_extent(self.now, ask, range),
        };
        let Some(grant) = grant else {
            return Ok(vec!["no".into()]);
        };
        let said = vec![self.names.grant(client, &grant)];
        self.post(
            client,
            CacheInput::Granted {
                grant,
                in_use: false,
            },
        );
        Ok(said)
    }

    /// `readmit A #1 7 CHILD op 1`; the key `all` means every entry.
    fn readmit(&mut self, words: &mut Words) -> Said {
        let (client, handle) = (words.client()?, self.names.handle(words.next()?)?);
        let key = words.key()?;
        let bits = parse::bits(words.next()?)?;
        let op = words
            .option("op")?
            .map(parse::number)
            .transpose()?
            .map(OpId);
        let Some(readmitted) = self.table.readmit(op, client, handle, key, bits) else {
            return Ok(vec!["no".into()]);
        };
        let said = vec![format!("{} v{}", readmitted.bits, readmitted.version)];
        let (bits, version) = (readmitted.bits, readmitted.version);
        self.post(
            client,
            CacheInput::Readmitted {
                handle,
                key,
                bits,
                version,
            },
        );
        Ok(said)
    }

    /// Feeds the table, traces what it says, and posts it to the clients that joined.
    fn server(&mut self, input: Input) -> Vec<String> {
        let mut out = Vec::new();
        self.table.step(self.now, input, &mut out);
        let said = out.iter().map(|output| self.names.output(output)).collect();
        out.into_iter().for_each(|output| self.forward(output));
        said
    }

    fn forward(&mut self, output: Output) {
        match output {
            Output::Granted { client, grant, .. } => {
                self.post(
                    client,
                    CacheInput::Granted {
                        grant,
                        in_use: true,
                    },
                );
            }
            Output::Blocking {
                client,
                handle,
                mode,
                cover,
                ..
            } => {
                self.post(
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
                self.post(
                    client,
                    CacheInput::Withdraw {
                        handle,
                        key,
                        bits,
                        version,
                    },
                );
            }
            Output::ShrinkYourLocks { client } => self.post(client, CacheInput::Shrink),
            _ => {}
        }
    }

    fn post(&mut self, client: ClientId, message: CacheInput) {
        if let Some(mount) = self.clients.get_mut(&client) {
            mount.mailbox.push_back(message);
        }
    }

    fn cache(&mut self, client: ClientId, input: CacheInput) -> Said {
        let mount = self
            .clients
            .get_mut(&client)
            .ok_or("this client has no cache")?;
        let mut out: Vec<CacheOutput> = Vec::new();
        mount.cache.step(self.now, input, &mut out);
        Ok(out
            .iter()
            .map(|output| self.names.cache_output(client, output))
            .collect())
    }

    fn client_command(&mut self, client: ClientId, words: &mut Words) -> Said {
        let verb = words.next()?;
        match verb {
            "deliver" => return self.deliver(client, words),
            "send" => return self.send(client, words),
            "lru_max" | "age_max" => {
                let value = words.number()?;
                let cache = self.cache_mut(client)?;
                match verb {
                    "lru_max" => cache.set_lru_max(value as usize),
                    _ => cache.set_age_max(Duration::from_secs(value)),
                }
                return Ok(Vec::new());
            }
            "find" | "acquire" | "take" => return self.query(client, verb, words),
            "admits" | "covers" | "changed" => return self.lease_query(client, verb, words),
            "epoch" => return self.cache(client, CacheInput::NewEpoch),
            _ => {}
        }
        let handle = self.names.handle(words.next()?)?;
        let input = match verb {
            "release" => CacheInput::Release { handle },
            "dropped" => CacheInput::Dropped { handle },
            "keeps" => CacheInput::Kept {
                handle,
                mode: words.mode()?,
            },
            "give_up" => CacheInput::GiveUp { handle },
            "withdrawn" => {
                let version = words.version()?;
                CacheInput::Withdrawn { handle, version }
            }
            _ => return Err(format!("no command {verb}")),
        };
        self.cache(client, input)
    }

    fn cache_mut(&mut self, client: ClientId) -> Result<&mut LockCache, String> {
        let mount = self
            .clients
            .get_mut(&client)
            .ok_or("this client has no cache")?;
        Ok(&mut mount.cache)
    }

    /// Delivers what was said: all of it in order, or only grants, or only callbacks.
    fn deliver(&mut self, client: ClientId, words: &mut Words) -> Said {
        let which = words.rest();
        let mount = self
            .clients
            .get_mut(&client)
            .ok_or("this client has no cache")?;
        let wanted = |message: &CacheInput| match which.as_deref() {
            None => true,
            Some("grants") => matches!(message, CacheInput::Granted { .. }),
            Some("replies") => matches!(message, CacheInput::Readmitted { .. }),
            Some(_) => matches!(
                message,
                CacheInput::Blocking { .. } | CacheInput::Withdraw { .. } | CacheInput::Shrink
            ),
        };
        let (now, later) = mount.mailbox.drain(..).partition(wanted);
        mount.mailbox = later;
        let now: VecDeque<CacheInput> = now;
        let mut said = Vec::new();
        for message in now {
            said.extend(self.cache(client, message)?);
        }
        Ok(said)
    }

    /// Sends the server what the cache has for it, one batch.
    fn send(&mut self, client: ClientId, words: &mut Words) -> Said {
        let max = words.rest().map_or(Ok(64), |max| parse::number(&max))?;
        let releases = self.cache_mut(client)?.take_releases(max as usize);
        let mut said = Vec::new();
        for release in releases {
            said.push(self.names.release(client, release));
            let input = match release {
                Release::Cancel(handle) => Input::Cancel {
                    client,
                    handles: vec![handle],
                },
                Release::Convert(handle, keep) => Input::Convert {
                    client,
                    handle,
                    keep,
                },
                Release::WithdrawAck(handle, version) => Input::WithdrawAck {
                    client,
                    handle,
                    version,
                },
            };
            said.extend(self.server(input));
        }
        Ok(said)
    }

    fn query(&mut self, client: ClientId, verb: &str, words: &mut Words) -> Said {
        let (resource, mode, cover) = (words.resource()?, words.mode()?, words.cover()?);
        let now = self.now;
        let cache = self.cache_mut(client)?;
        let handles: Vec<LockHandle> = match verb {
            "find" => cache
                .lookup(now, resource, mode, cover)
                .into_iter()
                .collect(),
            "acquire" => cache
                .acquire(now, resource, mode, cover)
                .into_iter()
                .collect(),
            _ => cache.take_conflicting(resource, mode, cover),
        };
        let shown: Vec<String> = handles
            .into_iter()
            .map(|handle| self.names.show(handle))
            .collect();
        Ok(vec![if shown.is_empty() {
            "no".into()
        } else {
            shown.join(" ")
        }])
    }

    fn lease_query(&mut self, client: ClientId, verb: &str, words: &mut Words) -> Said {
        let subject = words.next()?;
        let key = words.key()?;
        let bits = parse::bits(words.next()?)?;
        let says = |yes: bool| Ok(vec![if yes { "yes".into() } else { "no".into() }]);
        let resource = parse::resource(subject)?;
        if verb == "admits" {
            let version = words.version()?;
            return says(self.cache_mut(client)?.admits(resource, key, bits, version));
        }
        if verb == "covers" {
            let key = key.ok_or("one entry, please")?;
            return says(self.cache_mut(client)?.covers_entry(resource, key, bits));
        }
        let version = words.version()?;
        self.cache_mut(client)?
            .changed(resource, key, bits, version);
        Ok(Vec::new())
    }
}

impl Names {
    fn grant(&mut self, client: ClientId, grant: &Grant) -> String {
        format!(
            "granted {} {}",
            trace::client(client),
            self.grant_body(grant)
        )
    }
}
