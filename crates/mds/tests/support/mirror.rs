//! What a client keeps of the answers it got, as far as locks cover it: all of it must be true at
//! every moment.

use std::collections::{BTreeMap, HashMap};

use base::{Fid, FsError, LockHandle, Name};
use dlm::Bits;
use wire::mdt::{Callback, Lease, Page, Reply, Request};
use wire::{Attr, Cover, DirState, FileKind, Grant, Node};

/// One client's cache.
#[derive(Debug, Default)]
pub struct Mirror {
    pub grants: BTreeMap<LockHandle, Grant>,
    /// What names lead to; `None`: they are free.
    pub names: HashMap<(Fid, Name), Option<Fid>>,
    /// Attributes, and by the lease on which directory (or a lock of their own) they are covered.
    pub attrs: HashMap<Fid, (Attr, Option<Fid>)>,
    /// All that answers to what was asked before may be older than.
    news: Vec<News>,
}

/// Something that an answer on its way does not tell of.
#[derive(Debug, Clone)]
enum News {
    /// Others are about to change what the callback says.
    Asked(Callback),
    /// This client has changed something.
    Changed,
}

impl Mirror {
    pub fn clear(&mut self) {
        *self = Mirror::default();
    }

    /// All bits held on `fid`.
    pub fn bits(&self, fid: Fid) -> Bits {
        let of_fid = self.grants.values().filter(|grant| grant.fid == fid);
        of_fid.fold(Bits::NONE, |bits, grant| bits | Bits(grant.bits))
    }

    /// When it is, in news: to be given with the answer to what is sent now.
    pub fn now(&self) -> usize {
        self.news.len()
    }

    /// A question came, and is about to be answered.
    pub fn asked(&mut self, callback: &Callback) {
        self.news.push(News::Asked(callback.clone()));
        self.forget(callback);
    }

    fn forget(&mut self, callback: &Callback) {
        match callback {
            Callback::Blocking { handle, .. } => {
                self.grants.remove(handle);
                self.drop_uncovered();
            }
            Callback::Withdraw {
                dir,
                bits,
                name,
                child,
                ..
            } => {
                if Bits(*bits).contains(Bits::LIST) {
                    self.attrs.remove(dir);
                }
                if let Some(name) = name {
                    self.names.remove(&(*dir, name.clone()));
                }
                self.attrs.remove(child);
            }
            _ => {}
        }
    }

    fn drop_uncovered(&mut self) {
        let grants = std::mem::take(&mut self.grants);
        let bits = |fid: Fid| {
            let of_fid = grants.values().filter(|grant| grant.fid == fid);
            of_fid.fold(Bits::NONE, |bits, grant| bits | Bits(grant.bits))
        };
        self.names
            .retain(|(dir, _), _| bits(*dir).contains(Bits::NAMES));
        self.attrs.retain(|fid, (attr, dir)| match dir {
            Some(dir) => bits(*dir).contains(Bits::CHILD),
            None => bits(*fid).contains(own_bits(attr.kind)),
        });
        self.grants = grants;
    }

    /// The answer to what was sent at `asked` came.
    pub fn answered(&mut self, asked: usize, request: &Request, result: &Result<Reply, FsError>) {
        let Ok(reply) = result else { return };
        self.keep_reply(request, reply);
        let since: Vec<News> = self.news.iter().skip(asked).cloned().collect();
        for news in since {
            match (news, reply) {
                (News::Asked(callback), _) => {
                    self.forget(&callback);
                    if let Callback::Blocking { fid, .. } = callback {
                        self.forget_seen_in(fid, request, reply);
                    }
                }
                (News::Changed, Reply::Page(page)) => self.forget_page(page),
                (News::Changed, _) => {}
            }
        }
        if request.is_modification() {
            self.news.push(News::Changed);
        }
    }

    /// The lease on `dir` under which the answer was made is gone. Another, given since, does not cover it.
    fn forget_seen_in(&mut self, dir: Fid, request: &Request, reply: &Reply) {
        match (request, reply) {
            (_, Reply::Page(page)) if page.dir.fid == dir => self.forget_page(page),
            (Request::Lookup { dir: asked, name }, Reply::Lookup { node, .. }) if *asked == dir => {
                self.names.remove(&(dir, name.clone()));
                node.iter().for_each(|node| self.forget_child(dir, node));
            }
            (_, Reply::Node(node) | Reply::Opened { node, .. }) => self.forget_child(dir, node),
            _ => {}
        }
    }

    fn forget_child(&mut self, dir: Fid, node: &Node) {
        let home = self.attrs.get(&node.fid).and_then(|(_, home)| *home);
        if home == Some(dir) {
            self.attrs.remove(&node.fid);
        }
    }

    /// Nothing of a page is certain.
    fn forget_page(&mut self, page: &Page) {
        for entry in &page.entries {
            self.names.remove(&(page.dir.fid, entry.name.clone()));
            self.attrs.remove(&entry.fid);
        }
        self.attrs.remove(&page.dir.fid);
    }

    fn keep_reply(&mut self, request: &Request, reply: &Reply) {
        match (request, reply) {
            (Request::Cancel { handles }, _) => {
                handles.iter().for_each(|handle| {
                    self.grants.remove(handle);
                });
                self.drop_uncovered();
            }
            (Request::Lookup { dir, name }, Reply::Lookup { lease, node }) => {
                if let Lease::Held(grant) = lease {
                    self.grants.insert(grant.handle, *grant);
                    let fid = node.as_ref().map(|node| node.fid);
                    self.names.insert((*dir, name.clone()), fid);
                }
                node.iter().for_each(|node| self.keep(node, Some(*dir)));
            }
            (Request::ReadDir { .. }, Reply::Page(page)) => self.keep_page(page),
            (Request::Walk { .. }, Reply::Walked { pages, .. }) => {
                pages.iter().for_each(|(_, page)| self.keep_page(page));
            }
            (Request::GetAttr { dir, .. }, Reply::Node(node)) => self.keep(node, Some(*dir)),
            (Request::SetAttr { dir, .. }, Reply::Node(node)) => self.keep(node, Some(*dir)),
            (Request::Open { dir, .. }, Reply::Opened { node, .. }) => {
                self.keep(node, Some(*dir));
            }
            (_, Reply::Node(node)) => {
                let home = self.attrs.get(&node.fid).and_then(|(_, dir)| *dir);
                self.keep(node, home);
            }
            (request, reply) => self.changed(request, reply),
        }
    }

    fn keep_page(&mut self, page: &Page) {
        if let Lease::Held(grant) = page.lease {
            self.grants.insert(grant.handle, grant);
            for entry in page.entries.iter().filter(|entry| !entry.is_outside) {
                self.names
                    .insert((page.dir.fid, entry.name.clone()), Some(entry.fid));
            }
            if page.covers_list {
                self.keep_dir(&page.dir);
            }
        }
        let nodes = page.entries.iter().filter_map(|entry| entry.node.as_ref());
        nodes.for_each(|node| self.keep(node, Some(page.dir.fid)));
    }

    fn changed(&mut self, request: &Request, reply: &Reply) {
        match (request, reply) {
            (Request::Create { name, .. }, Reply::Created { node, dir, .. }) => {
                self.name(dir, name, Some(node.fid));
                self.keep(node, Some(dir.fid));
            }
            (Request::Link { name, .. }, Reply::Linked { node, dir, .. }) => {
                self.name(dir, name, Some(node.fid));
                self.keep(node, None);
            }
            (Request::Unlink { name, .. }, Reply::Unlinked { dir, node }) => {
                self.name(dir, name, None);
                self.keep(node, None);
            }
            (
                Request::Rename { source, target, .. },
                Reply::Renamed {
                    source_dir,
                    target_dir,
                    node,
                    replaced,
                    whiteout,
                    ..
                },
            ) => {
                let exchange = matches!(
                    request,
                    Request::Rename {
                        mode: wire::mdt::RenameMode::Exchange,
                        ..
                    }
                );
                let other = replaced.as_ref().map(|other| other.fid);
                let left = whiteout.as_ref().map(|left| left.fid);
                self.name(source_dir, source, left.or(other.filter(|_| exchange)));
                self.name(target_dir, target, Some(node.fid));
                if replaced.is_none() && (node.attr.nlink > 1 || source == target) {
                    // Perhaps both were names of one file, and nothing happened.
                    self.names.remove(&(source_dir.fid, source.clone()));
                }
                self.keep(node, Some(target_dir.fid));
                if let Some(left) = whiteout {
                    self.keep(left, Some(source_dir.fid));
                }
                if let Some(replaced) = replaced {
                    let home = exchange.then_some(source_dir.fid);
                    self.keep(replaced, home);
                }
            }
            _ => {}
        }
    }

    /// An own change of a name, if the lease still covers that.
    fn name(&mut self, dir: &DirState, name: &Name, fid: Option<Fid>) {
        let leased = self.bits(dir.fid).contains(Bits::NAMES) && dir.version != 0;
        if leased {
            self.names.insert((dir.fid, name.clone()), fid);
        } else {
            self.names.remove(&(dir.fid, name.clone()));
        }
        self.keep_dir(dir);
    }

    fn keep_dir(&mut self, dir: &DirState) {
        let covered = self.bits(dir.fid).contains(own_bits(FileKind::Directory));
        if covered && dir.version != 0 {
            self.attrs.insert(dir.fid, (dir.attr.clone(), None));
        } else {
            self.attrs.remove(&dir.fid);
        }
    }

    fn keep(&mut self, node: &Node, dir: Option<Fid>) {
        match &node.cover {
            Cover::Own(grant) => {
                self.grants.insert(grant.handle, *grant);
                self.attrs.insert(node.fid, (node.attr.clone(), None));
            }
            // Found by its id alone, nobody knows which lease that is. And a lease may have been given
            // up meanwhile, or be in an answer that is held back.
            Cover::Parent => match dir.filter(|dir| self.bits(*dir).contains(Bits::CHILD)) {
                Some(dir) => {
                    self.attrs.insert(node.fid, (node.attr.clone(), Some(dir)));
                }
                None => {
                    self.attrs.remove(&node.fid);
                }
            },
            Cover::None => {
                self.attrs.remove(&node.fid);
            }
        }
    }
}

/// The bits of a file's own lock that cover its attributes.
fn own_bits(kind: FileKind) -> Bits {
    match kind {
        FileKind::Directory => Bits::PERM | Bits::LIST,
        _ => Bits::PERM | Bits::UPDATE,
    }
}
