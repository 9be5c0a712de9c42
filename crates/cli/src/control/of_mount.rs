//! What a mount answers: for its client, and for the targets that its process serves beside.

use std::sync::Arc;

use base::{Fid, FsError};
use client::{Client, params};
use fuse::kernel::Mount;
use fuse::translate::FileSystem;
use handover::Records;
use wire::SizeState;
use wire::mdt::WalkLevel;

use crate::supervisor::Watcher;

use super::ending::{Ending, FORCED};
use super::of_targets::ServedTargets;
use super::{Answer, Answering, ParamValue, Question, Setting, Status};

/// Why nobody here knows where bytes lie.
const FILES: &str = "its OST keeps objects as files (`--store files`), and their file system knows where \
                     those lie: use its own filefrag there";

/// What questions to a mount are about.
pub struct ServedMount {
    /// The file system.
    pub client: Client,
    /// Its name.
    pub fsname: String,
    /// The calls under way.
    pub files: Arc<FileSystem>,
    /// The mount's name for itself, as servers list it.
    pub uuid: String,
    /// Targets served by this very process.
    pub targets: Option<ServedTargets>,
    /// Who would let another process go on.
    pub by: Option<Watcher>,
    /// Where it is mounted, or was.
    pub mount: Arc<Mount>,
    /// Where the next process of a supervised mount finds what it needs.
    pub records: Option<Records>,
    /// How it ends.
    pub ending: Arc<Ending>,
}

impl Answering for ServedMount {
    fn answer(&self, question: Question) -> Answer {
        answer(question, self)
    }

    fn answer_to_others(&self, question: Question) -> Answer {
        let Question::Sync = question else {
            return self.answer(question);
        };
        // What is lost is told once, and to those whose mount it is.
        let client = self.client.clone();
        match client::executor::block_on(async move { client.sync().await }) {
            Ok(()) => Answer::Done,
            Err(error) => Answer::Failed(error.to_string()),
        }
    }

    fn ending(&self, is_wanted: &dyn Fn() -> bool) -> Answer {
        match self.ending.wait(is_wanted) {
            Some(outcome) => Answer::Ended(outcome.err()),
            None => Answer::Failed("nobody waits any more".to_owned()),
        }
    }
}

fn answer(question: Question, served: &ServedMount) -> Answer {
    let (client, fsname) = (served.client.clone(), served.fsname.clone());
    let done = |result: Result<(), String>| match result {
        Ok(()) => Answer::Done,
        Err(reason) => Answer::Failed(reason),
    };
    let is_watched = served.by.is_some_and(Watcher::watches);
    match question {
        Question::Status => Answer::Status(Status {
            fsname,
            pid: std::process::id(),
            mounted_at: served.mount.point().to_owned(),
            ending: !served.mount.is_mounted(),
            uuid: served.uuid.clone(),
            serves: served.targets.as_ref().map(ServedTargets::status),
            targets: client.targets().into_iter().collect(),
            sizes: client.sizes(),
            parked: served.files.parked(),
            replaced: client.replaced().filter(|_| is_watched),
            forsaken: !is_watched && client.replaced().is_some(),
        }),
        Question::Stats => Answer::Stats(Box::new(client.stats())),
        Question::Walks => Answer::Walks(client.walks()),
        Question::Clear => {
            client.counters().clear();
            Answer::Done
        }
        Question::ListParams => {
            let mut all = list_params(&fsname, client.params());
            all.extend(served.targets.iter().flat_map(ServedTargets::params));
            Answer::Params(all)
        }
        Question::SetParam { name, value } if is_of_mount(&name) => {
            done(client.set_param(&name, value))
        }
        question @ (Question::SetRule { .. } | Question::SetParam { .. }) => {
            match &served.targets {
                Some(targets) => targets.answer(question),
                None => Answer::Failed("this mount serves no target".to_owned()),
            }
        }
        Question::PathOf { fid } => path_of(client, fid),
        Question::SizeOnMdt { fid } => size_on_mdt(client, Fid(fid)),
        Question::Map { fid, offset } => map(client, Fid(fid), offset),
        Question::Sync => {
            let synced = async move { client.sync_or_tell().await };
            let synced = client::executor::block_on(synced);
            done(synced.map_err(|unwritten| unwritten.to_string()))
        }
        Question::Abandon => done(served.abandon()),
        Question::Ending => served.ending(&|| false),
        Question::PrefetchTree { levels } => prefetch_tree(client, levels),
        Question::PrefetchFiles { fids } => {
            let fids: Vec<Fid> = fids.into_iter().map(Fid).collect();
            let fetch = async move { client.prefetch_files(&fids).await };
            Answer::Files(client::executor::block_on(fetch))
        }
        Question::PrefetchRange { dir, range } => {
            let fetch = async move { client.prefetch_range(Fid(dir), &range).await };
            match client::executor::block_on(fetch) {
                Ok(count) => Answer::Files(count),
                Err(error) => Answer::Failed(error.to_string()),
            }
        }
        Question::DropCaches => {
            client.drop_caches();
            Answer::Done
        }
    }
}

impl ServedMount {
    /// Ends the process of a mount that is off, whatever it waits for.
    fn abandon(&self) -> Result<(), String> {
        if self.mount.is_mounted() {
            return Err("it is mounted still; unmount it first".to_owned());
        }
        if let Some(records) = &self.records {
            client::end_serving(records);
        }
        tracing::error!("{FORCED}");
        let ending = self.ending.clone();
        ending.note(Err(FORCED.to_owned()));
        std::thread::spawn(move || {
            ending.tell(Err(FORCED.to_owned()));
            std::process::exit(1);
        });
        Ok(())
    }
}

/// Names of targets' tunables say whose they are.
fn is_of_mount(name: &str) -> bool {
    !name.contains('.')
}

fn list_params(fsname: &str, values: &params::Params) -> Vec<ParamValue> {
    let value = |param: &params::Param| ParamValue {
        name: format!("llite.{fsname}.{}", param.name),
        value: Setting::Number(values.get(param.name).unwrap_or_default()),
        default: Setting::Number(param.default_value()),
        help: param.help.to_owned(),
    };
    params::ALL.iter().map(value).collect()
}

fn prefetch_tree(client: Client, levels: Vec<WalkLevel>) -> Answer {
    let part = client::executor::block_on(async move { client.prefetch_tree(levels).await });
    match part {
        Ok(part) => Answer::Tree {
            directories: u64::from(part.directories),
            entries: part.entries,
            next: part.next,
        },
        Err(error) => Answer::Failed(error.to_string()),
    }
}

fn size_on_mdt(client: Client, fid: Fid) -> Answer {
    let known = async move { client.size_on_mdt(fid).await };
    match client::executor::block_on(known) {
        Ok(attr) => Answer::SizeOnMdt {
            exact: attr.size_state == SizeState::Strict,
            size: attr.size,
            blocks: attr.blocks,
        },
        Err(error) => Answer::Failed(error.to_string()),
    }
}

fn map(client: Client, fid: Fid, offset: u64) -> Answer {
    let found = client::executor::block_on(async move { client.map(fid, offset).await });
    match found {
        Ok(map) => Answer::Map {
            ost: map.target.0,
            extents: map.extents,
            next: map.next,
        },
        Err(FsError::NotSupported) => Answer::Failed(FILES.to_owned()),
        Err(error) => Answer::Failed(error.to_string()),
    }
}

fn path_of(client: Client, fid: u64) -> Answer {
    let found = client::executor::block_on(async move { client.path_of(Fid(fid)).await });
    match found {
        Ok(path) => Answer::Path(path),
        Err(error) => Answer::Failed(error.to_string()),
    }
}
