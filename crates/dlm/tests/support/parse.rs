//! The words of a command.

use base::{ByteRange, ClientId, Xid};
use dlm::{Bits, Cover, Input, Keep, Kind, Mode, OpId, ResourceId, Want};

use super::trace::Names;

/// The words of one command, taken from the left.
pub struct Words<'a> {
    rest: Vec<&'a str>,
}

impl<'a> Words<'a> {
    pub fn new(command: &'a str) -> Words<'a> {
        Words {
            rest: command.split_whitespace().rev().collect(),
        }
    }

    pub fn next(&mut self) -> Result<&'a str, String> {
        self.rest.pop().ok_or_else(|| "a word is missing".into())
    }

    pub fn end(&self) -> Result<(), String> {
        match self.rest.last() {
            Some(word) => Err(format!("{word} has no meaning here")),
            None => Ok(()),
        }
    }

    /// Everything left, as one text.
    pub fn rest(&mut self) -> Option<String> {
        let words: Vec<&str> = self.rest.drain(..).rev().collect();
        (!words.is_empty()).then(|| words.join(" "))
    }

    pub fn client(&mut self) -> Result<ClientId, String> {
        client(self.next()?)
    }

    pub fn resource(&mut self) -> Result<ResourceId, String> {
        resource(self.next()?)
    }

    pub fn mode(&mut self) -> Result<Mode, String> {
        mode(self.next()?)
    }

    pub fn cover(&mut self) -> Result<Cover, String> {
        cover(self.next()?)
    }

    pub fn number(&mut self) -> Result<u64, String> {
        number(self.next()?)
    }

    pub fn version(&mut self) -> Result<u64, String> {
        number(self.next()?.trim_start_matches('v'))
    }

    pub fn seconds(&mut self) -> Result<u64, String> {
        number(self.next()?.trim_end_matches('s'))
    }

    /// An entry's key, or `all`.
    pub fn key(&mut self) -> Result<Option<u64>, String> {
        match self.next()? {
            "all" => Ok(None),
            word => number(word).map(Some),
        }
    }

    /// The word after `name`, if that is what comes next.
    pub fn option(&mut self, name: &str) -> Result<Option<&'a str>, String> {
        if self.rest.last() != Some(&name) {
            return Ok(None);
        }
        self.rest.pop();
        self.next().map(Some)
    }

    pub fn flag(&mut self, name: &str) -> bool {
        let there = self.rest.last() == Some(&name);
        if there {
            self.rest.pop();
        }
        there
    }

    /// The next `name=value`.
    pub fn setting(&mut self) -> Result<Option<(&'a str, usize)>, String> {
        let Some(word) = self.rest.pop() else {
            return Ok(None);
        };
        let (name, value) = word.split_once('=').ok_or("not a setting")?;
        Ok(Some((name, number(value)? as usize)))
    }
}

pub fn number(word: &str) -> Result<u64, String> {
    word.parse().map_err(|_| format!("{word} is not a number"))
}

pub fn client(word: &str) -> Result<ClientId, String> {
    match word.as_bytes() {
        [letter @ b'A'..=b'Z'] => Ok(ClientId(u64::from(letter - b'A') + 1)),
        _ => Err(format!("{word} is not a client")),
    }
}

pub fn resource(word: &str) -> Result<ResourceId, String> {
    let space = word.bytes().next().ok_or("no resource")?;
    let id = number(&word[1..])?;
    Ok(ResourceId { space, id })
}

pub fn mode(word: &str) -> Result<Mode, String> {
    let found = Mode::ALL.into_iter().find(|mode| mode.to_string() == word);
    found.ok_or_else(|| format!("{word} is not a mode"))
}

pub fn bits(word: &str) -> Result<Bits, String> {
    if word == "-" {
        return Ok(Bits::NONE);
    }
    let named = |name: &str| Bits::named(name).ok_or_else(|| format!("{name} is not a bit"));
    word.split('|')
        .try_fold(Bits::NONE, |bits, name| Ok(bits | named(name)?))
}

pub fn cover(word: &str) -> Result<Cover, String> {
    let Some((start, end)) = word.split_once("..") else {
        return bits(word).map(Cover::Bits);
    };
    let end = if end == "EOF" { u64::MAX } else { number(end)? };
    Ok(Cover::Range(ByteRange::new(number(start)?, end)))
}

/// An event for the table.
pub fn input(verb: &str, words: &mut Words, names: &Names) -> Result<Input, String> {
    Ok(match verb {
        "enqueue" => enqueue(words)?,
        "abandon" => Input::Abandon {
            client: words.client()?,
            request: Xid(words.number()?),
        },
        "begin" => begin(words)?,
        "end" => Input::End {
            op: OpId(words.number()?),
        },
        "abort" => Input::Abort {
            op: OpId(words.number()?),
        },
        "cancel" => {
            let client = words.client()?;
            let handles = words.rest().unwrap_or_default();
            let handles = handles.split_whitespace().map(|name| names.handle(name));
            Input::Cancel {
                client,
                handles: handles.collect::<Result<_, _>>()?,
            }
        }
        "convert" => {
            let (client, handle) = (words.client()?, names.handle(words.next()?)?);
            let word = words.next()?;
            let keep = mode(word)
                .map(Keep::Mode)
                .or_else(|_| bits(word).map(Keep::Bits))?;
            Input::Convert {
                client,
                handle,
                keep,
            }
        }
        "ack" => {
            let (client, handle) = (words.client()?, names.handle(words.next()?)?);
            Input::WithdrawAck {
                client,
                handle,
                version: words.version()?,
            }
        }
        "values" => {
            let (client, handle) = (words.client()?, names.handle(words.next()?)?);
            let value = words.rest().unwrap_or_default().into_bytes();
            Input::GlimpseReply {
                client,
                handle,
                value,
            }
        }
        "evict" => Input::Evict {
            client: words.client()?,
        },
        _ => return Err(format!("no command {verb}")),
    })
}

fn enqueue(words: &mut Words) -> Result<Input, String> {
    let (client, request) = (words.client()?, Xid(words.number()?));
    let (resource, mode) = (words.resource()?, words.mode()?);
    let kind = match words.cover()? {
        Cover::Range(range) => Kind::Extent { range },
        Cover::Bits(required) => {
            let try_bits = words.option("try")?.map_or(Ok(Bits::NONE), bits)?;
            Kind::Inode {
                bits: required,
                try_bits,
            }
        }
    };
    let nonblock = words.flag("nonblock");
    Ok(Input::Enqueue {
        client,
        request,
        resource,
        mode,
        kind,
        nonblock,
    })
}

/// `begin 1 A lock r1 EX UPDATE, name d1 7 PW`; the client `-` is the server itself.
fn begin(words: &mut Words) -> Result<Input, String> {
    let op = OpId(words.number()?);
    let client = match words.next()? {
        "-" => None,
        word => Some(client(word)?),
    };
    let text = words.rest().unwrap_or_default();
    let wants = text.split(',').filter(|part| !part.trim().is_empty());
    let wants = wants
        .map(|part| want(&mut Words::new(part)))
        .collect::<Result<_, _>>()?;
    Ok(Input::Begin { op, client, wants })
}

fn want(words: &mut Words) -> Result<Want, String> {
    let (verb, resource) = (words.next()?, words.resource()?);
    let want = match verb {
        "lock" => Want::Lock {
            resource,
            mode: words.mode()?,
            cover: words.cover()?,
        },
        "name" => Want::Name {
            resource,
            hash: words.number()?,
            mode: words.mode()?,
        },
        "withdraw" => {
            let bits = bits(words.next()?)?;
            Want::Withdraw {
                resource,
                bits,
                key: words.number()?,
            }
        }
        "glimpse" => match words.rest() {
            Some(word) => Want::Glimpse {
                resource,
                bits: bits(&word)?,
            },
            None => Want::GlimpseExtent {
                resource,
                speculative: false,
            },
        },
        "tell" => Want::Tell { resource },
        "peek" => Want::GlimpseExtent {
            resource,
            speculative: true,
        },
        _ => return Err(format!("no want {verb}")),
    };
    words.end()?;
    Ok(want)
}
