//! Writing: into the cache, under a lock; sent later. SEMANTICS: op.write, op.append

use base::limits::FILE_BYTES_MAX;
use base::{ByteRange, Fid, FsError};
use dlm::Mode;

use crate::cache::State;
use crate::client::Client;
use crate::handles::HandleId;
use crate::io::cover::{By, Covering, covering};
use crate::kernel::Forget;
use crate::stats::bump;

/// How bytes are to be written.
#[derive(Debug, Clone, Copy, Default)]
pub struct WriteWish {
    /// At the end of file, wherever that is by then (hazard 8).
    pub append: bool,
    /// Pages the kernel writes back from a mapping: no caller, and its pages are locked.
    pub write_back: bool,
    /// Clear setuid and setgid.
    pub kill_privileges: bool,
}

impl Client {
    /// Writes `data`; returns where it went. Durable after fsync.
    pub async fn write(
        &self,
        fid: Fid,
        handle: Option<HandleId>,
        offset: u64,
        data: &[u8],
        wish: WriteWish,
    ) -> Result<u64, FsError> {
        bump(&self.0.stats.write);
        let append = wish.append
            || handle.is_some_and(|id| self.lock().handles.file(id).is_some_and(|f| f.append));
        // Pages are written back for nobody, and again is right for those.
        if !wish.write_back && self.lock().written_before.take() {
            return Ok(offset);
        }
        self.wait_for_room(wish.write_back).await;
        if wish.kill_privileges {
            self.kill_privileges(fid).await?;
        }
        let by = if wish.write_back {
            By::WriteBack
        } else {
            By::Call
        };
        let (at, remembered) = loop {
            let cover = {
                let mut state = self.lock();
                if wish.write_back && state.file(fid).lapsing > 0 {
                    // The kernel tells who syncs it.
                    return Err(FsError::Io);
                }
                let (at, range) = place(&mut state, fid, offset, data.len(), append)?;
                match covering(&mut state, fid, range, Mode::PW, by)? {
                    Covering::Lock(_) => {
                        let remembered = self.put(&mut state, fid, at, data);
                        if append && remembered {
                            state.remember_written();
                        }
                        break (at, remembered);
                    }
                    other => other,
                }
            };
            match cover {
                Covering::Wait(wait) => {
                    wait.await;
                }
                _ => self.enqueue(fid, Mode::PW, by).await?,
            }
        };
        if !remembered {
            bump(&self.0.stats.unremembered);
            self.write_out_durably(fid, ByteRange::ALL, |_| true)
                .await?;
            if append {
                self.lock().remember_written();
            }
        }
        if append && at != offset {
            // The kernel believes it wrote at `offset`.
            let range = ByteRange::from(at.min(offset));
            let (client, what) = (self.clone(), Forget::Pages { fid, range });
            crate::executor::spawn(async move { client.0.forget(what).await });
        }
        let counter = &self.0.stats.write_bytes;
        counter.fetch_add(data.len() as u64, std::sync::atomic::Ordering::Relaxed);
        Ok(at)
    }

    /// False: these bytes are not remembered for the next process.
    fn put(&self, state: &mut State, fid: Fid, at: u64, data: &[u8]) -> bool {
        let tick = self.0.clock.tick();
        let now = state.content_time(fid, self.0.clock.now());
        let told_time = state.with_pages(fid, |file| {
            file.pages.write(at, data, tick);
            let told_time = file.changed.mtime.is_some();
            file.wrote(at + data.len() as u64, now);
            told_time
        });
        if told_time {
            state.remember_change(fid);
        }
        state.remember_bytes(fid, now, at, data)
    }

    async fn kill_privileges(&self, fid: Fid) -> Result<(), FsError> {
        let set = {
            let state = self.lock();
            state
                .known(fid)
                .and_then(|i| i.attr.as_ref())
                .is_some_and(|a| a.mode & 0o6000 != 0)
        };
        if !set {
            return Ok(());
        }
        let change = wire::mdt::SetAttr {
            kill_privileges: true,
            ..Default::default()
        };
        let caller = wire::mdt::Caller::default();
        self.setattr(caller, fid, change, None).await.map(|_| ())
    }
}

/// Where `len` bytes go, and what must be locked for them.
fn place(
    state: &mut State,
    fid: Fid,
    offset: u64,
    len: usize,
    append: bool,
) -> Result<(u64, ByteRange), FsError> {
    let at = match append {
        true => state.file(fid).known.size,
        false => offset,
    };
    let range = ByteRange::at(at, len as u64).ok_or(FsError::FileTooBig)?;
    if range.end > FILE_BYTES_MAX {
        return Err(FsError::FileTooBig);
    }
    // An append needs to know where the file ends: the lock reaches to there and beyond.
    Ok((at, if append { ByteRange::ALL } else { range }))
}
