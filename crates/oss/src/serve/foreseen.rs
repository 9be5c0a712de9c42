//! What a frame of requests is going to change, before the core has it. What the core would wait
//! for while it answers nobody is done here, where only the frame's own client waits.

use rpc::Batch;
use wire::opcode;
use wire::ost::Request;

use crate::syncer::Syncer;

/// Has what the changes in `batch` need done by `syncer`. Where that fails they meet the same.
pub(super) fn prepare(batch: &Batch, syncer: &Syncer) {
    let messages = batch.messages.iter();
    let requests = messages.filter(|message| message.opcode == opcode::OST);
    let requests: Vec<Request> = requests
        .filter_map(|message| wire::decode(&message.body).ok())
        .collect();
    if let Err(error) = syncer.foresee(&requests) {
        tracing::debug!(%error, "a change could not be prepared");
    }
}
