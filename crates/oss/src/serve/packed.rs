//! The answers of one frame as one reply: the data of reads goes to the bulk region.

use base::FsError;
use base::limits::BULK_BYTES_MAX;
use rpc::{ReplyBatch, ReplyMessage};
use wire::frame::Bulk;
use wire::ost::Reply;

use crate::outbox::Answer;

/// The answers of one frame.
pub(super) fn packed(answers: impl IntoIterator<Item = Result<Answer, FsError>>) -> ReplyBatch {
    let mut batch = ReplyBatch::default();
    for answer in answers {
        let fits = |answer: &Answer| batch.bulk.len() + answer.data.len() <= BULK_BYTES_MAX;
        let message = match answer {
            Ok(answer) if fits(&answer) => packed_one(answer, &mut batch.bulk),
            // Nothing was changed by it: only reads have data. The client asks again, alone.
            Ok(_) => failed(FsError::TryAgain),
            Err(error) => failed(error),
        };
        batch.replies.push(message);
    }
    batch
}

fn packed_one(Answer { mut reply, data }: Answer, bulk: &mut Bulk) -> ReplyMessage {
    if let Reply::Read { bulk: place, .. } = &mut reply {
        place.0 = bulk.len() as u32;
    }
    bulk.push(data);
    ReplyMessage {
        status: 0,
        body: wire::encode(&reply),
    }
}

fn failed(error: FsError) -> ReplyMessage {
    ReplyMessage {
        status: wire::status_of(Err(error)),
        body: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use wire::ost::ObjectAttr;

    use super::*;

    fn read(data: &[u8]) -> Result<Answer, FsError> {
        let bulk = (0, data.len() as u32);
        let reply = Reply::Read {
            bulk,
            grant: None,
            attr: ObjectAttr::default(),
        };
        Ok(Answer {
            reply,
            data: Bytes::copy_from_slice(data),
        })
    }

    #[test]
    fn data_of_several_reads_shares_the_bulk_region() {
        let answers = [
            read(b"one"),
            Err(FsError::Stale),
            Ok(Reply::Done.into()),
            read(b"three"),
        ];
        let batch = packed(answers);
        assert_eq!(batch.bulk.joined(), b"onethree"[..]);
        assert_eq!(
            wire::status_from(batch.replies[1].status),
            Err(FsError::Stale)
        );
        assert_eq!(wire::decode(&batch.replies[2].body), Ok(Reply::Done));
        let place = |body| match wire::decode(body) {
            Ok(Reply::Read { bulk, .. }) => bulk,
            other => panic!("{other:?}"),
        };
        assert_eq!(place(&batch.replies[0].body), (0, 3));
        assert_eq!(place(&batch.replies[3].body), (3, 5));
    }

    #[test]
    fn reads_beyond_what_a_frame_holds_are_to_be_asked_again() {
        let half = vec![7; BULK_BYTES_MAX / 2 + 1];
        let batch = packed([read(&half), read(&half), read(b"x")]);
        assert_eq!(batch.bulk.len(), half.len() + 1);
        assert_eq!(
            wire::status_from(batch.replies[1].status),
            Err(FsError::TryAgain)
        );
        assert_eq!((batch.replies[0].status, batch.replies[2].status), (0, 0));
    }
}
