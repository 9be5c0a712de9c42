//! Losses that outages excuse (SEMANTICS: crash.eviction, crash.mount). Before the check a history is
//! settled: calls that its outages may have undone, and that no other caller saw, are left out.

use std::collections::{BTreeSet, HashMap, HashSet};

use crate::event::{Call, Event, NEVER, Outcome};
use crate::object::{Kind, Object};
use crate::outage::{Cause, Outage};

/// What is written is on its way after `dirty_age_ms`, a second; a busy machine may take as long again
/// and more to send it.
const UNSENT_MAX: u64 = 3_000_000_000;

impl Outage {
    /// The call was made on this mount, and some of it was in the outage.
    fn meets(&self, event: &Event) -> bool {
        self.mount == event.mount && event.begin <= self.end && event.end >= self.begin
    }

    /// It was made before the mount was told.
    fn is_own_view(&self, (mount, begin): (u32, u64)) -> bool {
        self.mount == mount && begin <= self.begin
    }

    fn allows(&self, errno: i32) -> bool {
        match self.cause {
            Cause::Evicted => [libc::EIO, libc::ESTALE].contains(&errno),
            Cause::Died => [libc::ENOTCONN, libc::ECONNABORTED, libc::EIO].contains(&errno),
        }
    }
}

/// Calls that report what was lost before: the first through each open file.
pub(super) struct Excuses<'a> {
    outages: &'a [Outage],
    reports: HashMap<Reporter, Vec<&'a Event>>,
}

/// A process, and an open file of it.
type Reporter = (u32, Kind, u32, u64);

fn reporter(event: &Event) -> Option<Reporter> {
    let Object { kind, number, .. } = event.object;
    match kind {
        // A new file of the process's own each time, under one name, which the rename makes durable.
        Kind::Replaced if event.call != Call::Read => Some((event.process, kind, 0, 0)),
        _ => event
            .syncs()
            .then_some((event.process, kind, number, event.file)),
    }
}

impl<'a> Excuses<'a> {
    pub fn new(history: &'a [Event], outages: &'a [Outage]) -> Excuses<'a> {
        let mut reports: HashMap<Reporter, Vec<&Event>> = HashMap::new();
        if !outages.is_empty() {
            for event in history {
                if let Some(reporter) = reporter(event) {
                    reports.entry(reporter).or_default().push(event);
                }
            }
        }
        Excuses { outages, reports }
    }

    /// The call may fail with this, or not return.
    pub fn excuse(&self, event: &Event, errno: Option<i32>) -> bool {
        let meets = |outage: &&Outage| outage.meets(event);
        let mut met = self.outages.iter().filter(meets);
        if met.any(|outage| errno.is_none_or(|errno| outage.allows(errno))) {
            return true;
        }
        errno == Some(libc::EIO) && self.is_first_report(event)
    }

    /// The first `fsync` since an eviction, through its file.
    fn is_first_report(&self, event: &Event) -> bool {
        let reports = reporter(event).and_then(|reporter| self.reports.get(&reporter));
        let Some(reports) = reports else {
            return false;
        };
        let since = |outage: &Outage| outage.end..event.begin;
        let is_first = |outage: &Outage| {
            let between = since(outage);
            !reports.iter().any(|other| between.contains(&other.begin))
        };
        let evictions = self.outages.iter().filter(|outage| {
            let is_before = outage.mount == event.mount && outage.end < event.begin;
            is_before && outage.cause == Cause::Evicted
        });
        evictions.into_iter().any(is_first)
    }
}

/// The history without what its outages have taken:
///
/// - A call of the mount that only looks, made in an outage, counts from the begin of the outage.
/// - Bytes that the mount had not sent, and no `fsync` had made durable, may be gone as a whole.
/// - What failed in an outage was done by its end, or never.
pub(super) fn settle(history: &[Event], outages: &[Outage]) -> Vec<Event> {
    let mut events = history.to_vec();
    if outages.is_empty() {
        return events;
    }
    for event in events.iter_mut().filter(|event| looks(event)) {
        let within = |outage: &&Outage| outage.meets(event) && outage.begin < event.begin;
        event.begin = outages
            .iter()
            .filter(within)
            .map(|outage| outage.begin)
            .min()
            .unwrap_or(event.begin);
    }
    let lost = Lost::of(&events, outages);
    events
        .into_iter()
        .filter_map(|event| lost.left_of(event))
        .collect()
}

/// It changes nothing.
fn looks(event: &Event) -> bool {
    match event.call {
        Call::Read | Call::ReadAll | Call::Stat | Call::List | Call::Count => true,
        Call::Acquire => event.outcome == Outcome::Busy,
        _ => false,
    }
}

/// What a change leaves to be found: a value, or a record.
fn mark(event: &Event) -> Option<(Object, u64)> {
    match event.call {
        Call::Write(value) => Some((event.object, value)),
        Call::Append(record) => Some((event.object, record)),
        _ => None,
    }
}

/// What went with outages, and what did not.
#[derive(Default)]
struct Lost {
    /// Nobody else has seen it.
    gone: HashSet<(Object, u64)>,
    /// Logs of which records are gone, perhaps in parts.
    gapped: BTreeSet<Object>,
    /// It failed, and was seen: it was done by then.
    done_by: HashMap<(Object, u64), u64>,
}

impl Lost {
    fn of(events: &[Event], outages: &[Outage]) -> Lost {
        let syncs = Syncs::of(events);
        let mut in_doubt: HashMap<(Object, u64), (&Event, Vec<&Outage>)> = HashMap::new();
        for event in events {
            let takes = |outage: &&Outage| may_take(outage, event, &syncs);
            let takers: Vec<&Outage> = outages.iter().filter(takes).collect();
            if let (Some(mark), false) = (mark(event), takers.is_empty()) {
                in_doubt.insert(mark, (event, takers));
            }
        }
        let seen = seen(events, |mark| in_doubt.contains_key(mark));
        let mut lost = Lost::default();
        for (mark, (event, takers)) in in_doubt {
            let seen = seen.get(&mark).map_or(&[][..], Vec::as_slice);
            let is_gone = |outage: &Outage| seen.iter().all(|look| outage.is_own_view(*look));
            if takers.iter().any(|outage| is_gone(outage)) {
                lost.gone.insert(mark);
                if mark.0.kind == Kind::Log {
                    lost.gapped.insert(mark.0);
                }
            } else if !event.is_done() {
                let by = takers.iter().map(|outage| outage.end).max();
                let end = by.max((event.end != NEVER).then_some(event.end));
                lost.done_by.insert(mark, end.unwrap_or(NEVER));
            }
        }
        lost
    }

    /// The event as it is checked; None: not at all.
    fn left_of(&self, mut event: Event) -> Option<Event> {
        if let Some(mark) = mark(&event) {
            if self.gone.contains(&mark) {
                return None;
            }
            if let Some(end) = self.done_by.get(&mark) {
                (event.end, event.outcome) = (*end, Outcome::Done);
            }
            return Some(event);
        }
        let is_gone = |id: u64| self.gone.contains(&(event.object, id));
        let is_gapped = self.gapped.contains(&event.object);
        event.outcome = match event.outcome {
            Outcome::Value(value) if is_gone(value) => return None,
            Outcome::Sizes(..) if is_gapped => return None,
            Outcome::Records(records) | Outcome::Gapped(records, _) if is_gapped => {
                let known = records.into_iter().take_while(|id| !is_gone(*id));
                Outcome::Records(known.collect())
            }
            outcome => outcome,
        };
        Some(event)
    }
}

/// Who has seen each of these: the mount, and when it asked.
fn seen(
    events: &[Event],
    is_asked: impl Fn(&(Object, u64)) -> bool,
) -> HashMap<(Object, u64), Vec<(u32, u64)>> {
    let mut seen: HashMap<(Object, u64), Vec<(u32, u64)>> = HashMap::new();
    for event in events {
        let found: &[u64] = match &event.outcome {
            Outcome::Value(value) => &[*value],
            Outcome::Records(records) | Outcome::Gapped(records, _) => records,
            _ => continue,
        };
        for id in found {
            let mark = (event.object, *id);
            if is_asked(&mark) {
                seen.entry(mark)
                    .or_default()
                    .push((event.mount, event.begin));
            }
        }
    }
    seen
}

/// The outage may have taken the change, or left it undone.
fn may_take(outage: &Outage, event: &Event, syncs: &Syncs<'_>) -> bool {
    if !event.is_done() {
        return outage.meets(event);
    }
    let is_over = outage.mount == event.mount && event.begin <= outage.end;
    let is_unsent = match event.object.kind {
        // The kernel writes stores back when it likes.
        Kind::Word if event.how == "store" => true,
        // Names and sizes are at their server when the call returns.
        Kind::Block | Kind::Word | Kind::Log => event.end + UNSENT_MAX > outage.begin,
        _ => false,
    };
    is_over && is_unsent && !event.syncs() && !syncs.cover(event, outage)
}

/// The calls that make what was written before durable, by mount and file, in their order.
struct Syncs<'a>(HashMap<(u32, Kind, u32), Vec<&'a Event>>);

impl<'a> Syncs<'a> {
    fn of(events: &'a [Event]) -> Syncs<'a> {
        let mut syncs: HashMap<_, Vec<&Event>> = HashMap::new();
        for event in events.iter().filter(|event| event.syncs()) {
            let key = (event.mount, event.object.kind, event.object.number);
            syncs.entry(key).or_default().push(event);
        }
        for list in syncs.values_mut() {
            list.sort_by_key(|event| event.begin);
        }
        Syncs(syncs)
    }

    /// It is durable: an `fsync` returned before the outage; or the next one through the same open file
    /// has no loss to report.
    fn cover(&self, write: &Event, outage: &Outage) -> bool {
        let key = (write.mount, write.object.kind, write.object.number);
        let Some(syncs) = self.0.get(&key) else {
            return false;
        };
        let later = &syncs[syncs.partition_point(|sync| sync.begin < write.end)..];
        let mut before = later.iter().take_while(|sync| sync.begin < outage.begin);
        if before.any(|sync| sync.is_done() && sync.end < outage.begin) {
            return true;
        }
        let its = |sync: &&&Event| (sync.process, sync.file) == (write.process, write.file);
        let next = later.iter().find(its);
        write.file != 0 && next.is_some_and(|next| next.is_done())
    }
}
