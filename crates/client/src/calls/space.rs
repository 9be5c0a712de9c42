//! Space and files of the whole file system. SEMANTICS: op.statfs

use std::time::Duration;

use base::FsError;
use wire::mdt::{Reply, Request, Space};
use wire::ost;

use crate::client::{Client, unexpected};

/// For how long an answer is good enough: `find` and `du` ask at each start, for the kind of file
/// system only.
const AGE_MAX: Duration = Duration::from_secs(30);

impl Client {
    /// Bytes from the OSTs, files from the MDT; at most half a minute old, and never older than what this
    /// mount wrote or removed last.
    pub async fn statfs(&self) -> Result<Space, FsError> {
        let now = self.0.clock.tick();
        let known = self
            .lock()
            .space
            .filter(|(asked, _)| now.since(*asked) < AGE_MAX);
        if let Some((_, space)) = known {
            return Ok(space);
        }
        let space = self.ask_space().await?;
        self.lock().space = Some((now, space));
        Ok(space)
    }

    async fn ask_space(&self) -> Result<Space, FsError> {
        let reply = self.0.mdt(Request::StatFs).await?;
        let Reply::Space(mut space) = reply else {
            return Err(unexpected(&reply));
        };
        (space.bytes_total, space.bytes_free, space.bytes_available) = (0, 0, 0);
        for (target, _) in &self.0.cluster.osts {
            let answer = self.0.ost(*target, ost::Request::StatFs).await?;
            let ost::Reply::Space(part) = answer.reply else {
                return Err(unexpected(&answer.reply));
            };
            space.bytes_total += part.bytes_total;
            space.bytes_free += part.bytes_free;
            space.bytes_available += part.bytes_available;
        }
        Ok(space)
    }
}
