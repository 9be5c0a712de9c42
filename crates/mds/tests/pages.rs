//! Pages of directories beside changes of some of their entries: the lease covers the others.

mod support;

use std::time::Duration;

use base::{ClientId, Fid, Xid};
use dlm::Bits;
use support::*;
use wire::Cover;
use wire::mdt::{DirEntry, Lease, Page, Reply, Request, SetAttr};

const FILES: usize = 20;

/// A directory of many files, its maker, a client that has read it and says nothing from now on, and
/// one that has not.
struct Scene {
    world: World,
    dir: Fid,
    files: Vec<Fid>,
    writer: ClientId,
    reader: ClientId,
    late: ClientId,
}

fn text(number: usize) -> String {
    format!("f{number:02}")
}

fn scene() -> Scene {
    let mut world = World::new();
    let [writer, reader, late] = [1, 2, 3].map(|n| world.connect(n));
    let dir = world.mkdir(writer, Fid::ROOT, "d");
    let files = (0..FILES).map(|number| world.touch(writer, dir, &text(number)));
    let files = files.collect();
    world.flush();
    let mut scene = Scene {
        world,
        dir,
        files,
        writer,
        reader,
        late,
    };
    let page = scene.page(reader);
    assert!(page.covers_list && is_leased(&page));
    assert!(page.entries.iter().all(is_covered));
    scene.world.client(reader).manners = Manners::Silent;
    scene
}

impl Scene {
    fn request(&self) -> Request {
        Request::ReadDir {
            dir: self.dir,
            cookie: 0,
            attrs_max: 100,
            entries_max: 100,
            bytes_max: 1 << 16,
        }
    }

    fn page(&mut self, client: ClientId) -> Page {
        let request = self.request();
        match self.world.call(client, request) {
            Ok(Reply::Page(page)) => page,
            other => panic!("{other:?}"),
        }
    }

    /// The writer begins a change, which waits for the reader.
    fn begin(&mut self, request: Request) -> u64 {
        let tag = self.world.send(self.writer, request);
        assert!(self.world.poll(tag).is_none(), "it waits");
        tag
    }

    /// The reader acknowledges, the change is made, and is durable.
    fn end(&mut self, tag: u64) {
        self.world.client(self.reader).manners = Manners::Prompt;
        assert!(self.world.wait(tag).0.is_ok());
        self.world.flush();
    }

    fn change_of(&self, fid: Fid) -> Request {
        Request::SetAttr {
            fid,
            dir: self.dir,
            change: SetAttr {
                mode: Some(0o600),
                ..SetAttr::default()
            },
            caller: ROOT_USER,
            under: Default::default(),
        }
    }
}

fn is_leased(page: &Page) -> bool {
    let wanted = Bits::NAMES | Bits::CHILD | Bits::LIST;
    matches!(page.lease, Lease::Held(grant) if Bits(grant.bits).contains(wanted))
}

fn is_covered(entry: &DirEntry) -> bool {
    let node = entry.node.as_ref().expect("attributes came");
    !entry.is_outside && node.cover == Cover::Parent
}

/// The names of a page that the lease does not cover in full.
fn uncovered(page: &Page) -> Vec<String> {
    let uncovered = page.entries.iter().filter(|entry| !is_covered(entry));
    uncovered.map(|entry| entry.name.to_string()).collect()
}

#[test]
fn a_file_that_is_changing_is_outside_the_lease_and_no_other() {
    let mut scene = scene();
    let fid = scene.files[3];
    let change = scene.begin(scene.change_of(fid));
    for client in [scene.reader, scene.late] {
        let page = scene.page(client);
        assert!(is_leased(&page) && page.covers_list, "{page:?}");
        assert_eq!(uncovered(&page), [text(3)]);
        assert!(page.entries.iter().all(|entry| !entry.is_outside));
    }
    scene.end(change);
    for client in [scene.reader, scene.late] {
        assert_eq!(uncovered(&scene.page(client)), [""; 0]);
        scene.world.client(client).asked.clear();
    }
    // What was covered again is withdrawn again.
    let change = scene.change_of(fid);
    assert!(scene.world.call(scene.writer, change).is_ok());
    for client in [scene.reader, scene.late] {
        assert_eq!(scene.world.client(client).asked.len(), 1);
    }
}

#[test]
fn a_name_that_comes_or_goes_leaves_the_others_their_cover() {
    let mut scene = scene();
    let fid = scene.world.fid(scene.writer);
    let creates = scene.begin(make_request(fid, scene.dir, "new", wire::FileKind::Regular));
    let removes = scene.begin(Request::Unlink {
        dir: scene.dir,
        name: name(&text(5)),
        directory: false,
        caller: ROOT_USER,
    });
    for client in [scene.reader, scene.late] {
        let page = scene.page(client);
        assert!(is_leased(&page) && !page.covers_list, "{page:?}");
        assert_eq!(uncovered(&page), [text(5)]);
        let outside = page.entries.iter().filter(|entry| entry.is_outside);
        assert_eq!(outside.count(), 1);
    }
    scene.end(creates);
    scene.end(removes);
    for client in [scene.reader, scene.late] {
        let page = scene.page(client);
        assert!(page.covers_list && page.entries.len() == FILES);
        assert_eq!(uncovered(&page), [""; 0]);
    }
}

/// Its client would give the old one back for it, which would count as the acknowledgement.
#[test]
fn no_new_lock_is_given_while_a_withdrawal_is_not_acknowledged() {
    let mut scene = scene();
    let change = scene.begin(scene.change_of(scene.files[3]));
    let locks = |scene: &Scene| scene.world.mds.locks().table().handles(scene.reader);
    let before = locks(&scene);
    let xattrs = scene
        .world
        .call(scene.reader, Request::GetXattrs { fid: scene.dir });
    assert!(
        matches!(xattrs, Ok(Reply::Xattrs { cover: None, .. })),
        "{xattrs:?}"
    );
    scene.page(scene.reader);
    assert_eq!(locks(&scene), before);
    scene.end(change);
}

#[test]
fn a_page_that_waits_for_the_disk_has_its_lease() {
    let mut scene = scene();
    scene.world.client(scene.reader).manners = Manners::Prompt;
    let change = scene.change_of(scene.files[3]);
    assert!(scene.world.call(scene.writer, change).is_ok());
    scene.world.auto_flush = false;
    let (late, request) = (scene.late, scene.request());
    let tag = scene.world.send(late, request);
    assert!(
        scene.world.poll(tag).is_none(),
        "it shows what is not durable"
    );
    scene.world.flush();
    match scene.world.poll(tag).expect("durable").0 {
        Ok(Reply::Page(page)) => {
            assert!(is_leased(&page) && page.covers_list);
            assert_eq!(uncovered(&page), [""; 0]);
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn beyond_the_bound_of_changes_there_is_no_lease() {
    let mut scene = scene();
    let many = base::limits::LEASE_WITHDRAWN_MAX + 1;
    let creates: Vec<u64> = (0..many as u16)
        .map(|number| {
            // So seldom that the directory is not fought over.
            scene.world.advance(Duration::from_millis(300));
            let (writer, fid) = (scene.writer, scene.world.fid(scene.writer));
            let text = format!("new{number}");
            let request = make_request(fid, scene.dir, &text, wire::FileKind::Regular);
            let xid = Xid(1000 + u64::from(number));
            scene.world.send_in(writer, 100 + number, xid, 0, request)
        })
        .collect();
    for client in [scene.reader, scene.late] {
        assert_eq!(scene.page(client).lease, Lease::None);
    }
    creates.into_iter().for_each(|tag| scene.end(tag));
}
