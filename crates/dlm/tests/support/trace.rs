//! Outputs as lines of text, with short names for lock handles.

use base::{ClientId, LockHandle};
use dlm::{CacheOutput, Grant, Keep, Output, Release, ResourceId};

/// Handles in the order in which they were first seen: `#1`, `#2`, …
#[derive(Default)]
pub struct Names {
    handles: Vec<LockHandle>,
}

pub fn client(id: ClientId) -> char {
    char::from(b'A' + (id.0 - 1) as u8)
}

fn resource(id: ResourceId) -> String {
    format!("{}{}", char::from(id.space), id.id)
}

impl Names {
    /// The handle of that name.
    pub fn handle(&self, name: &str) -> Result<LockHandle, String> {
        let number = name
            .strip_prefix('#')
            .and_then(|digits| digits.parse::<usize>().ok());
        let index = number.and_then(|number| number.checked_sub(1));
        let known = index.and_then(|index| self.handles.get(index));
        known.copied().ok_or_else(|| format!("no lock {name}"))
    }

    /// The name of that handle, given now if it is new.
    pub fn show(&mut self, handle: LockHandle) -> String {
        let known = self.handles.iter().position(|known| *known == handle);
        let index = known.unwrap_or_else(|| {
            self.handles.push(handle);
            self.handles.len() - 1
        });
        format!("#{}", index + 1)
    }

    pub fn grant_body(&mut self, grant: &Grant) -> String {
        let name = self.show(grant.handle);
        let mut text = format!(
            "{name} {} {} {}",
            resource(grant.resource),
            grant.mode,
            grant.cover
        );
        if grant.version > 0 {
            text += &format!(" v{}", grant.version);
        }
        for (key, bits) in &grant.withdrawn {
            text += &format!(", not {bits} of {key}");
        }
        text
    }

    pub fn output(&mut self, output: &Output) -> String {
        match output {
            Output::Granted {
                client: to,
                request,
                grant,
            } => {
                format!(
                    "granted {}/{} {}",
                    client(*to),
                    request.0,
                    self.grant_body(grant)
                )
            }
            Output::Refused {
                client: to,
                request,
                why,
            } => {
                format!("refused {}/{}: {why}", client(*to), request.0)
            }
            Output::Ready { op, glimpses, busy } => {
                let mut text = format!("ready {}", op.0);
                for answer in glimpses {
                    let value = String::from_utf8_lossy(&answer.value);
                    let on = resource(answer.resource);
                    text += &format!(", {on} {}: {value}", client(answer.client));
                }
                text + if *busy { ", busy" } else { "" }
            }
            Output::OpRefused { op } => format!("refused operation {}", op.0),
            Output::Aborted { op } => format!("aborted operation {}", op.0),
            Output::Blocking {
                client: to,
                handle,
                resource: on,
                mode,
                cover,
            } => {
                let (to, name) = (client(*to), self.show(*handle));
                format!("blocking {to} {name} {} for {mode} {cover}", resource(*on))
            }
            Output::Withdraw {
                client: to,
                handle,
                resource: on,
                key,
                bits,
                version,
            } => {
                let (to, name) = (client(*to), self.show(*handle));
                format!(
                    "withdraw {to} {name} {} {bits} of {key} v{version}",
                    resource(*on)
                )
            }
            Output::Glimpse {
                client: to,
                handle,
                resource: on,
            } => {
                format!(
                    "glimpse {} {} {}",
                    client(*to),
                    self.show(*handle),
                    resource(*on)
                )
            }
            Output::Tell {
                client: to,
                handle,
                resource: on,
                ops,
            } => {
                let ops: Vec<String> = ops.iter().map(|op| op.0.to_string()).collect();
                let (to, name) = (client(*to), self.show(*handle));
                format!("tell {to} {name} {} for {}", resource(*on), ops.join(" "))
            }
            Output::EvictionDue { client: whom } => format!("eviction due {}", client(*whom)),
            Output::ShrinkYourLocks { client: whom } => format!("shrink {}", client(*whom)),
            Output::Misuse {
                client: who,
                reason,
            } => format!("misuse {}: {reason}", client(*who)),
        }
    }

    pub fn cache_output(&mut self, who: ClientId, output: &CacheOutput) -> String {
        let who = client(who);
        match output {
            CacheOutput::Drop {
                handle,
                resource: on,
                cover,
                keep,
                reason,
            } => {
                let (name, on) = (self.show(*handle), resource(*on));
                format!("{who} drops {name} {on} {cover}, keeps {keep} ({reason:?})")
            }
            CacheOutput::Withdrawn {
                handle,
                resource: on,
                key,
                bits,
                version,
            } => {
                let (name, on) = (self.show(*handle), resource(*on));
                format!("{who} forgets {bits} of {key} in {on} {name} v{version}")
            }
            CacheOutput::DropAll => format!("{who} drops everything"),
        }
    }

    pub fn release(&mut self, who: ClientId, release: Release) -> String {
        let who = client(who);
        match release {
            Release::Cancel(handle) => format!("{who} sends cancel {}", self.show(handle)),
            Release::Convert(handle, Keep::Nothing) => {
                format!("{who} sends convert {} to nothing", self.show(handle))
            }
            Release::Convert(handle, keep) => {
                format!("{who} sends convert {} to {keep}", self.show(handle))
            }
            Release::WithdrawAck(handle, version) => {
                format!("{who} sends ack {} v{version}", self.show(handle))
            }
        }
    }
}
