//! Space and files of the whole file system. SEMANTICS: op.statfs

use base::FsError;
use rpc::Urgency;
use wire::mdt::{Reply, Request, Space};
use wire::ost;

use crate::client::{Client, unexpected};

impl Client {
    /// Bytes from the OSTs, files from the MDT.
    pub async fn statfs(&self) -> Result<Space, FsError> {
        let reply = self.0.mdt(Request::StatFs).await?;
        let Reply::Space(mut space) = reply else {
            return Err(unexpected(&reply));
        };
        (space.bytes_total, space.bytes_free, space.bytes_available) = (0, 0, 0);
        let cluster = &self.0.cluster;
        for (target, _) in &cluster.osts {
            let request = ost::Request::StatFs;
            let urgency = Urgency::Ordinary;
            let answer = cluster
                .ost(&self.0.stats, *target, request, Vec::new(), urgency)
                .await?;
            if let ost::Reply::Space(part) = answer.reply {
                space.bytes_total += part.bytes_total;
                space.bytes_free += part.bytes_free;
                space.bytes_available += part.bytes_available;
            }
        }
        Ok(space)
    }
}
