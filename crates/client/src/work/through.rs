//! Writing through to an OST that is soon full. A write is answered when the OST has the bytes, or has said
//! that it has no space for them. SEMANTICS: crash.full

use base::{ByteRange, Fid, FsError, TargetIndex};
use rpc::Urgency;
use wire::ost::{Reply, Request};

use crate::cache::pages::RANGE_SPACE_MAX;
use crate::executor::spawn;
use crate::session::client::Client;

/// A write to be answered by its OST.
pub(crate) struct Through {
    fid: Fid,
    /// Losses of the file that others are told of.
    losses: u32,
}

impl Client {
    /// `len` bytes more of the file may stay unsent: there is space for them and for all else that is unsent.
    /// Else they have to be written through, and all else was.
    pub(crate) async fn through(&self, fid: Fid, len: usize) -> Option<Through> {
        let target = self.lock().cache.ost(fid)?;
        if self.has_space(target, len).await {
            return None;
        }
        // What is unsent has its part of the space already, and comes first.
        self.write_out_of(target).await;
        if self.has_space(target, len).await {
            return None;
        }
        let losses = self.losses(fid).map_or(0, |(_, losses)| losses);
        Some(Through { fid, losses })
    }

    /// Sends what was written to the file, and says what came of it. A loss is told hereby for the whole
    /// mount; open files tell their callers yet, whose other bytes may have gone with the end of the file.
    pub(crate) async fn write_through(&self, through: Through) -> Result<(), FsError> {
        let fid = through.fid;
        self.write_out(fid, ByteRange::ALL).await;
        match self.losses(fid) {
            Some((error, losses)) if losses > through.losses => {
                self.lock().cache.file(fid).errors.report();
                Err(error)
            }
            _ => Ok(()),
        }
    }

    fn losses(&self, fid: Fid) -> Option<(FsError, u32)> {
        self.lock().cache.file_known(fid)?.errors.last()
    }

    /// The unsent bytes of all OSTs count: several may be on one disk.
    async fn has_space(&self, target: TargetIndex, len: usize) -> bool {
        let is_known = self.unsent_max(target).is_some();
        if !is_known && self.0.cluster.is_connected(target) {
            self.ask_unsent_max(target).await;
        }
        let wanted = self.lock().cache.unsent_space() + len as u64 + RANGE_SPACE_MAX;
        match self.unsent_max(target) {
            Some(max) => wanted <= max,
            // It is away. If it had plenty of space, writers wait for it only when much is unsent.
            None => {
                let known = self.lock().servers.unsent_max_known(target);
                known.is_some_and(|max| max >= self.0.params.dirty_max() && wanted <= max)
            }
        }
    }

    fn unsent_max(&self, target: TargetIndex) -> Option<u64> {
        let (now, plenty) = (self.0.clock.tick(), self.0.params.dirty_max());
        self.lock().servers.unsent_max(target, now, plenty)
    }

    /// Asks an OST how much may be unsent.
    pub(crate) async fn ask_unsent_max(&self, target: TargetIndex) {
        let asked = self.0.clock.tick();
        let (stats, request) = (&self.0.stats, Request::StatFs);
        let answer = self
            .0
            .cluster
            .ost(stats, target, request, Urgency::Urgent)
            .await;
        if let Ok(Reply::Space(space)) = answer.map(|answer| answer.reply) {
            let servers = &mut self.lock().servers;
            servers.learn_unsent_max(target, asked, space.unsent_max);
        }
    }

    /// The same, ahead of the first write.
    pub(crate) fn start_asking_unsent_max(&self, target: TargetIndex) {
        let client = self.clone();
        spawn(async move { client.ask_unsent_max(target).await });
    }
}
