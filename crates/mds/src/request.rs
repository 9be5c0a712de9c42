//! Requests on their way through the core, and the sessions that they come in.

use std::collections::VecDeque;

use base::{ClientId, FsError, Transno, Xid};
use dlm::IdMap;
use wire::mdt::{Reply, Request};

use crate::event::{Call, Output};
use crate::keys::ClientUuid;
use crate::ops::context::{Needs, Who};

/// Requests that may wait for locks or in their frames. Beyond: refused, `TryAgain`.
pub const PARKED_MAX: usize = 1 << 16;

/// A connected client.
#[derive(Debug)]
pub(crate) struct Session {
    pub uuid: ClientUuid,
    /// Of each slot in use the last frame, and the highest place in it that was answered.
    pub slots: IdMap<u16, (Xid, u16)>,
    /// Frames of which a request waits for locks, with the requests behind it.
    pub frames: IdMap<u16, VecDeque<(Call, Request)>>,
    /// It is written down, with this change, that it is to be waited for after a crash.
    pub known_since: Option<Transno>,
    /// An earlier boot gave it up, and told it.
    pub begins_anew: bool,
}

/// What a request waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stage {
    /// Other clients are to give up the write leases of its directories.
    Entering,
    /// What it needs to run.
    Own,
    /// The holder of a file is to say what that is like.
    Glimpse,
}

/// A request that waits for its locks.
#[derive(Debug)]
pub(crate) struct Parked {
    pub call: Call,
    pub request: Request,
    pub needs: Needs,
    pub restarts: u32,
    /// Others may have run since it said what it needs.
    pub waited: bool,
    /// What it waits for.
    pub stage: Stage,
    /// Those whose uses exclude it were asked to end them.
    pub asked: bool,
    /// It was done in an earlier boot of the target, and answered with this.
    pub replay: Option<Box<Reply>>,
}

impl Parked {
    /// A request that nobody has looked at.
    pub fn new(call: Call, request: Request) -> Parked {
        Parked {
            call,
            request,
            needs: Needs::default(),
            restarts: 0,
            waited: false,
            stage: Stage::Own,
            asked: false,
            replay: None,
        }
    }
}

/// An answer that waits for durability.
#[derive(Debug)]
pub(crate) struct Answer {
    pub client: ClientId,
    pub tag: u64,
    pub result: Result<Reply, FsError>,
    pub transno: Transno,
}

impl Answer {
    pub fn into_output(self) -> Output {
        let Answer {
            client,
            tag,
            result,
            transno,
        } = self;
        Output::Reply {
            client,
            tag,
            result,
            transno,
        }
    }

    pub fn into_output_as(self, result: Result<Reply, FsError>) -> Output {
        Answer {
            result,
            transno: Transno(0),
            ..self
        }
        .into_output()
    }
}

pub(crate) fn who(clients: &IdMap<ClientId, Session>, client: ClientId) -> Who {
    let uuid = clients.get(&client).map_or([0; 16], |session| session.uuid);
    Who { client, uuid }
}

pub(crate) fn reply(out: &mut Vec<Output>, call: Call, result: Result<Reply, FsError>) {
    out.push(reply_of(call, result));
}

/// An answer that changed nothing.
pub(crate) fn reply_of(call: Call, result: Result<Reply, FsError>) -> Output {
    let (client, tag) = (call.client, call.tag);
    Output::Reply {
        client,
        tag,
        result,
        transno: Transno(0),
    }
}
