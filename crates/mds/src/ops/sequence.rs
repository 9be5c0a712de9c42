//! A range of FID sequences, which is this client's for ever. The reply waits until
//! the grant is durable: no FID is ever minted from a sequence that could be granted twice.

use base::limits::SEQUENCES_PER_GRANT;
use base::{Fid, FsError, SequenceRange};
use wire::mdt::Reply;

use super::context::{Ctx, Op};
use crate::mutation::Mutation;
use crate::records::SequenceOwner;
use crate::txn::Result;

/// See [`wire::mdt::Request::AllocSequences`].
pub struct AllocSequences;

impl Op for AllocSequences {
    fn run(&self, ctx: &mut Ctx<'_, '_>) -> Result<Reply> {
        let first = ctx.txn.state.next_sequence;
        let range = SequenceRange {
            first,
            count: SEQUENCES_PER_GRANT,
        };
        if first + range.count > Fid::SEQUENCE_MAX {
            return Err(FsError::NoSpace.into());
        }
        for sequence in first..first + range.count {
            let owner = SequenceOwner {
                client: ctx.who.uuid,
            };
            ctx.txn.change(Mutation::PutSequence(sequence, owner));
        }
        ctx.txn.state.next_sequence += range.count;
        ctx.durable_first = true;
        let name_key = ctx.txn.state.hash_key;
        Ok(Reply::Sequences { range, name_key })
    }
}
