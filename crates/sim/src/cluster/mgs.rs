//! A management service that knows one cluster. It says where targets are, who joins asks it, and
//! who misses a target asks it again. It keeps nothing.

use std::sync::Arc;

use base::{BootEpoch, ClientId, Clock, TargetName, Transno, Xid};
use rpc::{
    Address, Batch, Connected, Departure, LastCommitted, ReplyBatch, ReplyMessage, Responder,
    ServedTarget, Server, ServerConfig, Service, Unwelcome,
};
use wire::mgs::{Config, Reply, TargetInfo};

use super::machine;

struct Mgs;

impl Service for Mgs {
    fn connected(&self, _session: Arc<Connected>) -> Result<(), Unwelcome> {
        Ok(())
    }

    fn request(
        &self,
        _session: &Arc<Connected>,
        _xid: Xid,
        _resent: bool,
        _batch: Batch,
        responder: Responder,
    ) {
        let at = |name: TargetName| TargetInfo {
            name,
            uuid: [name.index.0 as u8; 16],
            addresses: vec![name.to_string()],
        };
        let config = Config {
            fsname: "sim".to_owned(),
            uuid: [7; 16],
            generation: 1,
            targets: machine::targets().map(|(name, _)| at(name)).collect(),
        };
        let reply = ReplyMessage {
            status: 0,
            body: wire::encode(&Reply::Config(config)),
        };
        responder.reply(ReplyBatch {
            replies: vec![reply],
            ..ReplyBatch::default()
        });
    }

    fn succeeded(&self, _session: Arc<Connected>) {}

    fn disconnected(&self, _client: ClientId) {}

    fn expired(&self, _client: ClientId, _how: Departure) {}
}

/// Its machine; on or off.
pub(super) struct Management {
    clock: Arc<dyn Clock>,
    boots: u64,
    server: Option<Server>,
}

impl Management {
    /// Off.
    pub fn new(clock: Arc<dyn Clock>) -> Management {
        Management {
            clock,
            boots: 0,
            server: None,
        }
    }

    /// Serves those who come to `listen`.
    pub fn start(&mut self, listen: Vec<Address>) -> Result<(), String> {
        self.boots += 1;
        let target = ServedTarget {
            name: TargetName::MGS,
            key: None,
            server_key: None,
            boot_epoch: BootEpoch(self.boots),
            last_committed: LastCommitted::new(Transno(0)),
            service: Arc::new(Mgs),
        };
        let config = ServerConfig {
            clock: self.clock.clone(),
            ..ServerConfig::new(listen)
        };
        let server = Server::start(config, vec![target]).map_err(|error| error.to_string())?;
        self.server = Some(server);
        Ok(())
    }

    /// Ends it: in good order, or with no way to a link, where the power has failed.
    pub fn stop(&mut self) {
        if let Some(server) = self.server.take() {
            server.stop();
        }
    }
}
