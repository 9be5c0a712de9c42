//! Truncations that their OST may still lose: sent again to its next life before anybody else may do
//! anything there (docs/recovery.md, section 5).

use base::{Fid, FsError, LockHandle, TargetIndex, Timestamp, Transno};
use wire::mdt::WriteTicket;
use wire::ost::{ObjectAttr, Request};

use crate::cache::State;
use crate::client::Client;
use crate::cluster::object_of;
use crate::io::file::FileState;

/// Changes of a file's size, of which the OST may have none, some or all, durably or not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Cut {
    /// The shortest that the file was.
    lowest: u64,
    /// What the latest made it.
    last: u64,
    /// The right to do so.
    ticket: WriteTicket,
    /// The OST's number for the latest, once it is done.
    at: Option<Transno>,
    /// The OST has restarted since: nothing else of the file is sent before this is again.
    pub lost: bool,
}

impl Cut {
    /// The OST has done it.
    pub fn is_done(&self) -> bool {
        self.at.is_some()
    }

    /// What has to be done, one after the other.
    pub fn sizes(&self) -> Vec<u64> {
        let mut sizes = vec![self.lowest, self.last];
        sizes.dedup();
        sizes
    }
}

impl FileState {
    /// Its size is changed here, and is to be at the OST.
    pub fn begin_cut(&mut self, size: u64, ticket: WriteTicket) {
        let lowest = self.cut.map_or(size, |cut| cut.lowest.min(size));
        self.cut = Some(Cut {
            lowest,
            last: size,
            ticket,
            at: None,
            lost: false,
        });
    }

    /// The process before began this, and the OST may lack it.
    pub fn inherit_cut(&mut self, size: u64, ticket: WriteTicket) {
        self.begin_cut(size, ticket);
        self.lose_cut();
    }

    /// The OST has done it, in the life that it was `begun` in.
    pub fn cut_sent(&mut self, begun: u32, transno: Transno) {
        self.sent(transno);
        if let Some(cut) = self.cut.as_mut().filter(|_| self.restarts == begun) {
            (cut.at, cut.lost) = (Some(transno), false);
        }
    }

    /// It has to be sent again before anything else is.
    pub fn is_cut_lost(&self) -> bool {
        self.cut.is_some_and(|cut| cut.lost)
    }

    /// The OST has restarted.
    pub fn lose_cut(&mut self) {
        if let Some(cut) = &mut self.cut {
            (cut.at, cut.lost) = (None, true);
        }
    }

    /// Everything up to `last_committed` is durable.
    pub fn cut_committed(&mut self, last_committed: Transno) {
        self.cut
            .take_if(|cut| cut.at.is_some_and(|at| at <= last_committed));
    }
}

impl Client {
    /// What was changed of sizes on an OST that has restarted is changed there once more.
    pub(crate) async fn redo_cuts(&self, target: TargetIndex) {
        let lost = {
            let mut state = self.lock();
            let is_lost = |state: &mut State, fid| {
                let file = state.file_known(fid);
                file.is_some_and(|file| file.is_cut_lost())
            };
            let mut fids = state.fids();
            fids.retain(|fid| is_lost(&mut state, *fid) && state.ost(*fid) == Some(target));
            fids
        };
        for fid in lost {
            self.redo_cut(target, fid).await;
        }
    }

    /// The same of one file.
    pub(crate) async fn redo_cut(&self, target: TargetIndex, fid: Fid) {
        let (cut, begun, mtime) = {
            let mut state = self.lock();
            let file = state.file(fid);
            (file.cut, file.restarts, file.known.mtime)
        };
        let Some(cut) = cut.filter(|cut| cut.lost) else {
            return;
        };
        let mut done = Err(FsError::Io);
        for size in cut.sizes() {
            done = self.cut_again(target, fid, cut, size, mtime).await;
            if done.is_err() {
                break;
            }
        }
        let mut state = self.lock();
        let file = state.file(fid);
        if file.restarts != begun {
            return;
        }
        match done {
            Ok((_, transno)) => {
                file.cut_sent(begun, transno);
                file.recut += 1;
            }
            Err(error) => {
                tracing::error!("{fid}: its size could not be changed again: {error}");
                file.failures.add(error);
                file.cut = None;
            }
        }
        file.waiters.wake_all();
        state.uncommitted.insert(fid);
    }

    async fn cut_again(
        &self,
        target: TargetIndex,
        fid: Fid,
        cut: Cut,
        size: u64,
        mtime: Timestamp,
    ) -> Result<(ObjectAttr, Transno), FsError> {
        let request = Request::Truncate {
            object: object_of(fid),
            size,
            ticket: cut.ticket,
            mtime,
            under: LockHandle(0),
        };
        self.0.change_object(target, request).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cut_is_kept_until_it_is_durable() {
        let mut file = FileState::default();
        let ticket = WriteTicket::default();
        file.begin_cut(5, ticket);
        file.begin_cut(2, ticket);
        file.begin_cut(9, ticket);
        let cut = file.cut.expect("kept");
        assert_eq!((cut.lowest, cut.last, cut.lost), (2, 9, false));
        file.cut_committed(Transno(100));
        assert!(file.cut.is_some(), "it is on its way");
        file.cut_sent(0, Transno(7));
        file.cut_committed(Transno(6));
        assert!(file.cut.is_some());
        file.cut_committed(Transno(7));
        assert_eq!(file.cut, None);
    }

    #[test]
    fn what_a_life_before_did_is_not_taken_for_done() {
        let mut file = FileState::default();
        file.begin_cut(5, WriteTicket::default());
        file.restarts += 1;
        file.lose_cut();
        assert!(file.is_cut_lost() && !file.is_idle());
        file.cut_sent(0, Transno(7));
        file.cut_committed(Transno(100));
        assert!(file.is_cut_lost());
        file.cut_sent(1, Transno(3));
        assert!(!file.is_cut_lost() && file.cut.is_some());
    }
}
