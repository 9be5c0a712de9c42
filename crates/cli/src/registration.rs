//! Telling the MGS where targets are, and reaching the targets it names.

use std::sync::Arc;

use base::{BootEpoch, Clock, TargetIndex, TargetKind, TargetName, Transno};
use rpc::{
    Address, Batch, CallbackResponder, ClientHandler, Key, MemPort, Message, Peer, PeerConfig,
    Policy,
};
use wire::mgs::{Config, Reply, Request, TargetInfo};
use wire::opcode;

use crate::mgs::Mgs;

/// How this process reaches the MGS.
pub struct Registration<'a> {
    /// The MGS, if it is served here.
    pub mgs: Option<&'a Mgs>,
    /// Where it is otherwise.
    pub addresses: &'a [Address],
    /// What proves that this process belongs to the file system.
    pub key: &'a Key,
    /// Beyond loopback although nothing is encrypted.
    pub insecure: bool,
    /// Where this process listens for itself, and the targets it serves: these are reached without
    /// a socket, whether or not others can reach them.
    pub here: (&'a Arc<MemPort>, Vec<TargetName>),
}

/// The target with the addresses it is served at.
pub fn at(info: TargetInfo, addresses: &[Address]) -> TargetInfo {
    TargetInfo {
        addresses: addresses.iter().map(Address::to_string).collect(),
        ..info
    }
}

/// Servers call nobody back here.
struct NoCallbacks;

impl ClientHandler for NoCallbacks {
    fn callback(&self, _message: Message, _responder: CallbackResponder) {}
    fn epoch_changed(&self, _old: BootEpoch, _new: BootEpoch) {}
    fn evicted(&self) {}
    fn last_committed(&self, _transno: Transno) {}
}

impl Registration<'_> {
    /// Tells the MGS; what it knows then.
    pub fn register(
        &self,
        targets: Vec<TargetInfo>,
        clock: Arc<dyn Clock>,
    ) -> Result<Config, String> {
        if let Some(mgs) = self.mgs {
            return mgs.register(targets);
        }
        if self.addresses.is_empty() {
            return Err("no MGS among the targets; say where it is with --mgs ADDR".to_owned());
        }
        let peer = self.peer(TargetName::MGS, self.addresses.to_vec(), clock)?;
        let body = wire::encode(&Request::Register { targets });
        let answer = peer.call(Batch::of(opcode::MGS, body)).wait();
        peer.close();
        let answer = answer.map_err(|cause| format!("the MGS did not answer: {cause}"))?;
        let reply = answer
            .replies
            .first()
            .ok_or("the MGS gave an empty answer")?;
        wire::status_from(reply.status)
            .map_err(|_| "the MGS refused to register the targets; its log says why".to_owned())?;
        let Reply::Config(config) = wire::decode(&reply.body).map_err(|error| error.to_string())?;
        Ok(config)
    }

    /// A connection to each OST, for an MDT that removes objects.
    pub fn peers(
        &self,
        config: &Config,
        clock: Arc<dyn Clock>,
    ) -> Result<Vec<(TargetIndex, Peer)>, String> {
        let osts = config
            .targets
            .iter()
            .filter(|target| target.name.kind == TargetKind::Ost);
        osts.map(|target| {
            let addresses = self.addresses_of(target);
            Ok((
                target.name.index,
                self.peer(target.name, addresses, clock.clone())?,
            ))
        })
        .collect()
    }

    fn addresses_of(&self, target: &TargetInfo) -> Vec<Address> {
        let (port, ours) = &self.here;
        if ours.contains(&target.name) {
            return vec![Address::Mem((*port).clone())];
        }
        let parsed = target.addresses.iter().map(|text| text.parse());
        parsed.filter_map(Result::ok).collect()
    }

    fn peer(
        &self,
        target: TargetName,
        addresses: Vec<Address>,
        clock: Arc<dyn Clock>,
    ) -> Result<Peer, String> {
        let uuid = rpc::new_client_uuid().map_err(|error| error.to_string())?;
        let config = PeerConfig {
            target,
            addresses,
            uuid,
            incarnation: 1,
            key: Some(self.key.clone()),
            insecure: self.insecure,
            policy: Policy::Hard,
            lanes: 1,
            keeping: rpc::Keeping::Nothing,
            legacy: None,
        };
        Peer::new(config, Arc::new(NoCallbacks), clock).map_err(|error| error.to_string())
    }
}
