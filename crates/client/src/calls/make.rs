//! New names: create, mkdir, mknod, symlink. SEMANTICS: op.create, op.mkdir, op.mknod, op.symlink

use base::{Fid, FsError};
use wire::FileKind;
use wire::mdt::{Access, Caller, NewFile, OpenHandle, OpenIntent, Reply, Request, WriteTicket};

use crate::cache::handle::HandleId;
use crate::cache::listed::Listed;
use crate::cache::local_changes::NameChange;
use crate::cache::registration::WriteOpen;
use crate::cache::stamps::Mark;
use crate::calls::leases::Fetched;
use crate::session::client::{Client, Entry, NewNode, Place, unexpected};
use crate::session::file_handle::{FileHandle, OpenWish};
use crate::session::stats::bump;

impl Client {
    /// Makes a file of any kind, not opened.
    pub async fn make(&self, place: Place, new: NewNode) -> Result<Entry, FsError> {
        let is_directory = new.kind == FileKind::Directory;
        let (fid, named_at) = self.create_node(&place, new, None).await?;
        let is_born = !self.lock().births.is_unborn(fid);
        if is_directory && is_born && self.0.params.wbc() != 0 {
            self.take_write_lease(fid, Fetched::List).await;
        }
        self.referred(fid, named_at).await
    }

    /// Makes a regular file and opens it.
    pub async fn create(
        &self,
        place: Place,
        mode: u16,
        access: Access,
        append: bool,
    ) -> Result<(Entry, HandleId), FsError> {
        let new = NewNode {
            kind: FileKind::Regular,
            mode,
            rdev: 0,
            target: Vec::new(),
        };
        let (fid, named_at) = self.create_node(&place, new, Some(access)).await?;
        let wish = OpenWish { access, append };
        self.made_open(fid, named_at, wish).await
    }

    /// Makes a regular file without a name in `dir`, open. It goes with its last handle, unless
    /// [`Client::link`] gives it a name before. SEMANTICS: op.tmpfile
    pub async fn create_nameless(
        &self,
        (dir, caller): (Fid, Caller),
        mode: u16,
        access: Access,
        append: bool,
    ) -> Result<(Entry, HandleId), FsError> {
        bump(&self.0.stats.create);
        let (kind, target) = (FileKind::Regular, Vec::new());
        let ask = |fid| Request::CreateNameless {
            dir,
            file: NewFile {
                fid,
                kind,
                mode,
                rdev: 0,
                target: target.clone(),
            },
            caller,
            open: access,
        };
        let (mark, reply) = self.ask_with_fid(dir, ask).await?;
        let Reply::Created {
            node,
            handle,
            ticket,
            ..
        } = reply
        else {
            return Err(unexpected(&reply));
        };
        let fid = node.fid;
        let handle = self
            .opened_by_making(fid, access, (handle, ticket), mark)
            .await?;
        {
            let mut state = self.lock();
            let nowhere = Mark {
                dir: Fid::NONE,
                ..mark
            };
            state.take_node(&node, nowhere);
            state.servers.forget_space();
            state.cache.file(fid).made(access, handle);
            state.refer(fid);
        }
        self.made_open(fid, None, OpenWish { access, append }).await
    }

    /// The handle of a file that was just made, to which the kernel is counted to have a reference.
    async fn made_open(
        &self,
        fid: Fid,
        named_at: Option<u64>,
        wish: OpenWish,
    ) -> Result<(Entry, HandleId), FsError> {
        let handle = {
            let mut state = self.lock();
            let file = state.cache.file(fid);
            file.opens.add_handle(wish.access);
            let reported = file.errors.at_open();
            state.add_file(FileHandle::new(fid, wish, reported))
        };
        self.watch_for(handle, fid).await?;
        let entry = self.referred(fid, named_at).await;
        // Nobody will know the handle.
        let entry = entry.inspect_err(|_| self.release(handle))?;
        Ok((entry, handle))
    }

    /// The new node, to which the kernel is counted to have a reference: others may remove it before
    /// it is answered.
    async fn create_node(
        &self,
        place: &Place,
        new: NewNode,
        open: Option<Access>,
    ) -> Result<(Fid, Option<u64>), FsError> {
        bump(&self.0.stats.create);
        let made_before = self.lock().journal.was_made();
        if let Some(fid) = made_before {
            return self.made_by_the_process_before(fid, open).await;
        }
        if let Some(made) = self.make_here(place, &new, open) {
            return made;
        }
        if self.wish_write_lease(place.dir, Fetched::List).await
            && let Some(made) = self.make_here(place, &new, open)
        {
            return made;
        }
        let Place { dir, name, .. } = place.clone();
        let (mark, reply) = self.ask_for_node(place, &new, open).await?;
        let NewNode { kind, target, .. } = new;
        let Reply::Created {
            node,
            cookie,
            dir: dir_now,
            handle,
            ticket,
        } = reply
        else {
            return Err(unexpected(&reply));
        };
        // Not the one minted here, where the process before had asked for it already.
        let fid = node.fid;
        let handle = match open {
            Some(access) => {
                self.opened_by_making(fid, access, (handle, ticket), mark)
                    .await?
            }
            None => handle,
        };
        let mut state = self.lock();
        let current = state.take_dir(&dir_now, mark);
        state.take_node(&node, mark);
        state.servers.forget_space();
        if let Some(access) = open {
            state.cache.file(fid).made(access, handle);
        }
        match kind {
            FileKind::Symlink => state.cache.inode(fid).learn_target(target.into()),
            // Nothing is in a directory that was just made, and nobody else has seen it.
            FileKind::Directory if state.locks.holds(fid, crate::cache::bits::LEASE) => {
                state
                    .cache
                    .inode(fid)
                    .directory()
                    .extend(0, std::iter::empty(), true);
            }
            _ => {}
        }
        let name_change = NameChange::Made {
            cookie,
            entry: Listed { name, fid, kind },
        };
        state.cache.name_changed(dir, name_change, current);
        state.refer(fid);
        let name_valid = current && state.locks.holds(dir, dlm::Bits::NAMES);
        Ok((fid, name_valid.then(|| state.cache.stamp())))
    }

    /// The file was made before the kernel was answered, and the MDT has heard of it since.
    async fn made_by_the_process_before(
        &self,
        fid: Fid,
        open: Option<Access>,
    ) -> Result<(Fid, Option<u64>), FsError> {
        self.lock().refer(fid);
        if let Some(access) = open {
            let registered = self.register(fid, access, OpenIntent::Reopen).await;
            let handle = registered.inspect_err(|_| self.forget(fid, 1))?;
            self.lock().cache.file(fid).made(access, handle);
        }
        Ok((fid, None))
    }

    async fn ask_for_node(
        &self,
        place: &Place,
        new: &NewNode,
        open: Option<Access>,
    ) -> Result<(Mark, Reply), FsError> {
        let Place { dir, name, caller } = place.clone();
        let ask = |fid| {
            let file = NewFile {
                fid,
                kind: new.kind,
                mode: new.mode,
                rdev: new.rdev,
                target: new.target.clone(),
            };
            Request::Create {
                dir,
                name: name.clone(),
                file,
                caller,
                open,
            }
        };
        self.ask_with_fid(dir, ask).await
    }

    /// Asks with a FID for a new file, which comes from a sequence that the MDT granted this client. One
    /// that gave up on it before the question came knows nothing of that: then it is asked again with
    /// another.
    pub(crate) async fn ask_with_fid(
        &self,
        dir: Fid,
        ask: impl Fn(Fid) -> Request,
    ) -> Result<(Mark, Reply), FsError> {
        loop {
            let (mark, fid) = self.0.mint(dir).await?;
            match self.0.mdt(ask(fid)).await {
                Err(FsError::Stale) if self.outlives_removal(dir) => {
                    return Err(FsError::NotFound);
                }
                Err(FsError::Invalid) if !self.lock().servers.is_of_this_boot(mark) => {}
                reply => return Ok((mark, reply?)),
            }
        }
    }

    /// The use that a new file was made with, told of anew if the MDT has restarted meanwhile. One for
    /// writing is kept with the file.
    async fn opened_by_making(
        &self,
        fid: Fid,
        access: Access,
        (handle, ticket): (OpenHandle, WriteTicket),
        mark: Mark,
    ) -> Result<OpenHandle, FsError> {
        {
            let mut state = self.lock();
            if state.servers.is_of_this_boot(mark) {
                if access.write {
                    let registration = &mut state.cache.file(fid).registration;
                    registration.register_writers(WriteOpen { handle, ticket });
                }
                return Ok(handle);
            }
        }
        let again = self.register(fid, access, OpenIntent::Reopen).await;
        // Last: where this boot of the MDT made the file, and others have removed it since, this keeps it.
        self.end_uses(fid, vec![handle]);
        again
    }
}
