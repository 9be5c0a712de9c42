//! Commit on share. An answer that shows another client's change is held back until that change is
//! durable, so that a crash can only take what nobody else has seen.

use std::collections::VecDeque;

use base::{ClientId, Fid, FsError, Transno};
use dlm::{IdMap, IdSet};
use wire::mdt::{Reply, Request};
use wire::update::{Change, LeasedDir};
use wire::{FileKind, Node};

use crate::mutation::Mutation;
use crate::ops::update::{known_to, name_of};
use wire::hash::{NameHasher, hash_of};

/// What can be seen to have changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Visibility {
    /// A file's attributes, or that it is there.
    Inode(Fid),
    /// The names of a directory as a set, and what follows from it.
    List(Fid),
    /// One name: what it leads to, or that it is free. By the name's hash.
    Name(Fid, u64),
}

/// Changes that are not durable yet, by what shows them.
#[derive(Debug, Default)]
pub struct Sharing {
    fresh: IdMap<Visibility, Fresh>,
    order: VecDeque<(Transno, Visibility)>,
    /// Who made changes that are not durable yet, and the last of each.
    authors: Vec<(ClientId, Transno)>,
}

/// The newest changes of one thing.
#[derive(Debug, Clone, Copy)]
struct Fresh {
    client: ClientId,
    last: Transno,
    /// The last change by anybody but `client`.
    others: Transno,
}

impl Sharing {
    /// Nothing that `client` can be shown must be durable first: all changes that are not are its
    /// own.
    pub fn is_all_of(&self, client: ClientId) -> bool {
        self.authors.iter().all(|(author, _)| *author == client)
    }

    /// Things that show changes which are not durable.
    pub fn len(&self) -> usize {
        self.fresh.len()
    }

    /// There are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// `client` has changed these by `transno`.
    pub fn note(&mut self, client: ClientId, transno: Transno, visible: Vec<Visibility>) {
        if visible.is_empty() {
            return;
        }
        match self
            .authors
            .iter_mut()
            .find(|(author, _)| *author == client)
        {
            Some((_, last)) => *last = transno,
            None => self.authors.push((client, transno)),
        }
        for seen in visible {
            let fresh = self.fresh.entry(seen);
            let fresh = fresh.or_insert(Fresh {
                client,
                last: transno,
                others: Transno(0),
            });
            if fresh.client != client {
                (fresh.client, fresh.others) = (client, fresh.last);
            }
            fresh.last = transno;
            self.order.push_back((transno, seen));
        }
    }

    /// What must be durable before `client` may see these; zero: nothing.
    pub fn wait_for(&self, client: ClientId, visible: &[Visibility]) -> Transno {
        let waits = visible.iter().filter_map(|seen| {
            let fresh = self.fresh.get(seen)?;
            Some(if fresh.client == client {
                fresh.others
            } else {
                fresh.last
            })
        });
        waits.max().unwrap_or_default()
    }

    /// What must be durable before `client` may see anything.
    pub fn wait_for_all(&self, client: ClientId) -> Transno {
        let others = self.authors.iter().filter(|(author, _)| *author != client);
        others.map(|(_, last)| *last).max().unwrap_or_default()
    }

    /// Everything up to `committed` is durable.
    pub fn durable(&mut self, committed: Transno) {
        self.authors.retain(|(_, last)| *last > committed);
        while let Some((transno, seen)) = self.order.front().copied() {
            if transno > committed {
                return;
            }
            self.order.pop_front();
            if self
                .fresh
                .get(&seen)
                .is_some_and(|fresh| fresh.last <= committed)
            {
                self.fresh.remove(&seen);
            }
        }
    }
}

/// What `mutations` change for others to see, each thing once.
pub fn changed(mutations: &[Mutation]) -> Vec<Visibility> {
    let lists: IdSet<Fid> = mutations.iter().filter_map(list_changed).collect();
    let mut known = IdSet::default();
    let mut visible = Vec::new();
    let mut see = |seen| {
        if known.insert(seen) {
            visible.push(seen);
        }
    };
    for mutation in mutations {
        match mutation {
            Mutation::PutDirent(spot, _) | Mutation::RemoveDirent(spot) => {
                see(Visibility::List(spot.dir));
                see(Visibility::Name(spot.dir, hash_of(spot.cookie)));
            }
            // A directory's record that follows a change of its names shows no more than that.
            Mutation::PutInode(fid, _) if lists.contains(fid) => see(Visibility::List(*fid)),
            Mutation::PutInode(fid, _)
            | Mutation::RemoveInode(fid)
            | Mutation::PutPlace(fid, _)
            | Mutation::RemovePlace(fid)
            | Mutation::PutXattr(fid, ..)
            | Mutation::RemoveXattr(fid, _)
            | Mutation::PutTarget(fid, _) => see(Visibility::Inode(*fid)),
            _ => {}
        }
        if let Mutation::PutDirent(_, dirent) = mutation {
            see(Visibility::Inode(dirent.fid));
        }
    }
    visible
}

/// The directory whose names this changes.
fn list_changed(mutation: &Mutation) -> Option<Fid> {
    match mutation {
        Mutation::PutDirent(spot, _) | Mutation::RemoveDirent(spot) => Some(spot.dir),
        _ => None,
    }
}

/// What an answer shows, or builds on.
pub fn shown(
    hasher: NameHasher,
    request: &Request,
    result: &Result<Reply, FsError>,
) -> Vec<Visibility> {
    let mut visible = Vec::new();
    let name = |dir: &Fid, name| {
        [
            Visibility::Name(*dir, hasher.hash(name)),
            Visibility::Inode(*dir),
        ]
    };
    match request {
        Request::Lookup { dir, name: n }
        | Request::Create { dir, name: n, .. }
        | Request::Unlink { dir, name: n, .. } => visible.extend(name(dir, n)),
        Request::Link { fid, dir, name: n } => {
            visible.extend(name(dir, n));
            visible.push(Visibility::Inode(*fid));
        }
        Request::Rename {
            source_dir,
            source,
            target_dir,
            target,
            ..
        } => {
            visible.extend(name(source_dir, source));
            visible.extend(name(target_dir, target));
        }
        Request::Update { dirs, changes } => shown_by_set(hasher, dirs, changes, &mut visible),
        Request::CreateNameless { dir, .. } => visible.push(Visibility::Inode(*dir)),
        Request::GetAttr { fid, .. }
        | Request::ReadLink { fid }
        | Request::SetAttr { fid, .. }
        | Request::Open { fid, .. }
        | Request::Close { fid, .. }
        | Request::GetXattrs { fid }
        | Request::SetXattr { fid, .. }
        | Request::RemoveXattr { fid, .. }
        | Request::PathOf { fid } => visible.push(Visibility::Inode(*fid)),
        Request::ReadDir { dir, .. } | Request::LookupParent { dir } => {
            visible.extend([Visibility::Inode(*dir), Visibility::List(*dir)]);
        }
        _ => {}
    }
    if let Ok(reply) = result {
        shown_by_reply(reply, &mut visible);
    }
    visible
}

/// What a set of changes builds on: its directories, its names, and the files that were there.
fn shown_by_set(
    hasher: NameHasher,
    dirs: &[LeasedDir],
    changes: &[Change],
    visible: &mut Vec<Visibility>,
) {
    visible.extend(dirs.iter().map(|leased| Visibility::Inode(leased.dir)));
    for change in changes {
        if let Some((dir, name)) = name_of(change)
            && let Some(leased) = dirs.get(usize::from(dir))
        {
            visible.push(Visibility::Name(leased.dir, hasher.hash(name)));
        }
        let known = known_to(change).into_iter().flatten();
        visible.extend(known.map(Visibility::Inode));
    }
}

/// A refusal for something that the request does not name. There are names in what is to go, it is
/// somebody else's, or what is moved holds where it is moved to.
pub fn is_for_more_than_named(request: &Request, refused: FsError) -> bool {
    let takes_name = matches!(request, Request::Unlink { .. } | Request::Rename { .. });
    let why = matches!(
        refused,
        FsError::NotEmpty | FsError::NotPermitted | FsError::Invalid | FsError::TooManyLinks
    );
    takes_name && why
}

fn shown_by_reply(reply: &Reply, visible: &mut Vec<Visibility>) {
    let mut see = |node: &Node| {
        visible.push(Visibility::Inode(node.fid));
        if node.attr.kind == FileKind::Directory {
            visible.push(Visibility::List(node.fid));
        }
    };
    match reply {
        Reply::Node(node)
        | Reply::Lookup {
            node: Some(node), ..
        }
        | Reply::Linked { node, .. }
        | Reply::Unlinked { node, .. }
        | Reply::Opened { node, .. } => see(node),
        Reply::Renamed { node, replaced, .. } => {
            see(node);
            if let Some(replaced) = replaced {
                see(replaced);
            }
        }
        Reply::Page(page) => {
            page.entries
                .iter()
                .filter_map(|entry| entry.node.as_ref())
                .for_each(&mut see);
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: ClientId = ClientId(1);
    const B: ClientId = ClientId(2);

    #[test]
    fn only_others_changes_are_waited_for() {
        let mut sharing = Sharing::default();
        let seen = Visibility::Inode(Fid(9));
        let wait = |sharing: &Sharing, client| sharing.wait_for(client, &[seen]).0;
        sharing.note(A, Transno(1), vec![seen]);
        assert_eq!((wait(&sharing, A), wait(&sharing, B)), (0, 1));
        sharing.note(B, Transno(2), vec![seen]);
        sharing.note(B, Transno(3), vec![seen]);
        assert_eq!(
            (wait(&sharing, A), wait(&sharing, B)),
            (3, 1),
            "B's builds on A's"
        );
        sharing.durable(Transno(1));
        assert_eq!(wait(&sharing, A), 3);
        sharing.durable(Transno(3));
        assert!(sharing.fresh.is_empty() && sharing.order.is_empty());
    }

    #[test]
    fn what_is_all_of_one_client_is_waited_for_by_the_others_only() {
        let mut sharing = Sharing::default();
        sharing.note(A, Transno(1), vec![Visibility::Inode(Fid(9))]);
        assert!(sharing.is_all_of(A) && !sharing.is_all_of(B));
        sharing.note(B, Transno(2), vec![Visibility::Inode(Fid(8))]);
        assert!(!sharing.is_all_of(A));
        sharing.durable(Transno(1));
        assert!(sharing.is_all_of(B) && !sharing.is_all_of(A));
        sharing.durable(Transno(2));
        assert!(sharing.is_all_of(A));
    }
}
