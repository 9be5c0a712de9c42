//! Names that a rename looks up while another mount renames them. The kernel takes two names of one file for
//! nothing to do, and asks for no rename. The rule is in docs/locks.md, section 10, "Two names of one file".

use base::{Fid, FsError, Name};
use client::Entry;

use super::nodes::Place;
use super::retries::Retries;
use super::{Asked, caller};

/// A name in a directory.
type At<'a> = (Fid, &'a Name);

/// Which of the two paths of a rename ends with a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Role {
    Source,
    Target,
    /// Both, or a directory above has the name, too.
    Unclear,
}

/// A call that renames.
#[derive(Debug)]
struct RenameCall {
    exchanges: bool,
    paths: [Vec<u8>; 2],
}

/// The last component of a path.
fn last(path: &[u8]) -> &[u8] {
    components(path).next_back().unwrap_or_default()
}

fn components(path: &[u8]) -> impl DoubleEndedIterator<Item = &[u8]> {
    path.split(|byte| *byte == b'/')
        .filter(|component| !component.is_empty())
}

impl RenameCall {
    /// The call that the thread is in. None: another one, or the kernel does not say.
    fn of(thread: u32) -> Option<RenameCall> {
        let (number, arguments) = caller::arguments(thread)?;
        let [first, second, _, fourth, fifth, _] = arguments;
        let (paths, flags) = match number {
            number if RENAME_HERE.contains(&number) => ([first, second], 0),
            number if RENAMEAT.contains(&number) => ([second, fourth], 0),
            number if RENAMEAT2.contains(&number) => ([second, fourth], fifth),
            _ => return None,
        };
        let [from, to] = paths.map(|address| caller::path(thread, address));
        Some(RenameCall {
            exchanges: flags & u64::from(libc::RENAME_EXCHANGE) != 0,
            paths: [from?, to?],
        })
    }

    fn source(&self) -> &[u8] {
        last(&self.paths[0])
    }

    /// None: neither path ends with `name`.
    fn role(&self, name: &[u8]) -> Option<Role> {
        let count = |path: &[u8]| components(path).filter(|one| *one == name).count();
        let is_above = |path: &[u8]| count(path) > usize::from(last(path) == name);
        let [from, to] = &self.paths;
        match (last(from) == name, last(to) == name) {
            (false, false) => None,
            (true, true) => Some(Role::Unclear),
            _ if is_above(from) || is_above(to) => Some(Role::Unclear),
            (true, false) => Some(Role::Source),
            (false, true) => Some(Role::Target),
        }
    }
}

/// Those of programs of 32 bits have numbers of their own.
#[cfg(target_arch = "x86_64")]
const RENAME_HERE: &[libc::c_long] = &[libc::SYS_rename, 38];
#[cfg(not(target_arch = "x86_64"))]
const RENAME_HERE: &[libc::c_long] = &[];
#[cfg(target_arch = "x86_64")]
const RENAMEAT: &[libc::c_long] = &[libc::SYS_renameat, 302];
#[cfg(not(target_arch = "x86_64"))]
const RENAMEAT: &[libc::c_long] = &[];
#[cfg(target_arch = "x86_64")]
const RENAMEAT2: &[libc::c_long] = &[libc::SYS_renameat2, 353];
#[cfg(not(target_arch = "x86_64"))]
const RENAMEAT2: &[libc::c_long] = &[libc::SYS_renameat2];

/// How a question about a name is answered.
#[derive(Debug, PartialEq, Eq)]
enum Verdict {
    /// By what it leads to.
    Truth,
    /// The call is to look all its names up again.
    LookAgain,
    /// There is no such name: so the kernel asks for the rename, and the MDT decides.
    Absent,
    /// By what the source, this name, leads to now: two names that change places lead to two files.
    AsBefore(Fid, Name),
}

/// Answers a LOOKUP of a name with what it was found to lead to.
pub(super) async fn answer(asked: &Asked, at: At<'_>, found: Result<Entry, FsError>) {
    let place = Place::new(at.0.0, at.1.as_bytes());
    let fid = found.as_ref().map_or(Fid::NONE, |entry| entry.fid);
    let is_told_twice = asked.context.told_names.tell(asked.thread, place, fid);
    let verdict = match &found {
        Ok(_) if asked.thread != 0 => judge(asked, at, (fid, is_told_twice)),
        _ => Verdict::Truth,
    };
    let client = asked.client();
    let found = match (verdict, found) {
        (Verdict::LookAgain, Ok(entry)) => {
            client.forget(entry.fid, 1);
            return asked.look_again(at.0, at.1);
        }
        (Verdict::Absent, Ok(entry)) => {
            client.forget(entry.fid, 1);
            Err(FsError::NotFound)
        }
        (Verdict::AsBefore(dir, name), Ok(entry)) => {
            as_before(asked, (dir, &name), at, entry).await
        }
        (_, found) => found,
    };
    let led_to = found.as_ref().ok().map(|entry| entry.fid);
    asked.context.retries.leads(asked.thread, at, led_to);
    asked.found(at.0, at.1, found);
}

/// Judges a name that leads to `fid`. The kernel may believe that another name leads there: one that the
/// thread was told of just before, or one that is still to be forgotten.
fn judge(asked: &Asked, at: At<'_>, (fid, is_told_twice): (Fid, bool)) -> Verdict {
    let (thread, retries) = (asked.thread, &asked.context.retries);
    let asks_again = retries.asks_again(thread, at);
    let is_suspect = is_told_twice || asked.client().has_stale_names(fid);
    let may_be_second = asks_again || retries.has_led_elsewhere(thread, at, fid);
    if !is_suspect && !may_be_second {
        return Verdict::Truth;
    }
    let Some(call) = RenameCall::of(thread) else {
        return Verdict::Truth;
    };
    match call.role(at.1.as_bytes()) {
        Some(Role::Target) if asks_again => Verdict::LookAgain,
        // The second attempt, or the first one still, which asks once more for a name that it had believed.
        _ if asks_again => Verdict::Truth,
        // The kernel may believe the target without a question only where that must be there.
        Some(Role::Source) if call.exchanges && !retries.is_second(thread) => Verdict::LookAgain,
        Some(Role::Source) | None => Verdict::Truth,
        Some(role) => judge_target(retries, thread, (&call, role), (at.0, fid, is_suspect)),
    }
}

/// Judges the target in the directory `dir`, which leads to `fid`, or a name that is perhaps the source.
fn judge_target(
    retries: &Retries,
    thread: u32,
    (call, role): (&RenameCall, Role),
    (dir, fid, is_suspect): (Fid, Fid, bool),
) -> Verdict {
    // The process before knew where names had led.
    let Some(mut led) = retries.led(thread, call.source()) else {
        return Verdict::Truth;
    };
    led.retain(|(above, _)| *above != dir || role == Role::Target);
    let source = led.iter().find(|(_, led_to)| *led_to == fid);
    match (source, Name::new(call.source())) {
        (Some((above, _)), Ok(source)) if call.exchanges => Verdict::AsBefore(*above, source),
        (Some(_), _) => Verdict::Absent,
        _ if !led.is_empty() || !is_suspect => Verdict::Truth,
        _ if role == Role::Unclear && retries.is_second(thread) => Verdict::Truth,
        _ => Verdict::LookAgain,
    }
}

/// The target of an exchange as it was when the source was looked up, which led to the same file as `entry`.
/// The source leads there now. If it leads to that file again, the answer is the truth: a file of two names.
async fn as_before(
    asked: &Asked,
    source: At<'_>,
    target: At<'_>,
    entry: Entry,
) -> Result<Entry, FsError> {
    let client = asked.client();
    client.forget(entry.fid, 1);
    let mut other = client.lookup_pinned(source.0, source.1).await?;
    if other.fid == entry.fid {
        client.forget(other.fid, 1);
        other = client.lookup_pinned(target.0, target.1).await?;
    }
    Ok(Entry {
        attr_valid: false,
        name_valid: false,
        ..other
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn role(from: &str, to: &str, name: &str) -> Option<Role> {
        let paths = [from, to].map(|path| path.as_bytes().to_vec());
        let call = RenameCall {
            exchanges: false,
            paths,
        };
        call.role(name.as_bytes())
    }

    #[test]
    fn a_name_is_that_of_the_path_that_ends_with_it() {
        assert_eq!(role("/mnt/dir/x", "y", "x"), Some(Role::Source));
        assert_eq!(role("/mnt/dir/x", "y", "y"), Some(Role::Target));
        assert_eq!(role("x//", "dir//y/", "y"), Some(Role::Target));
        assert_eq!(
            role("/mnt/dir/x", "dir/y", "dir"),
            None,
            "a directory above"
        );
        assert_eq!(role("dir/x", "x", "x"), Some(Role::Unclear));
        assert_eq!(role("y/x", "y", "y"), Some(Role::Unclear));
        assert_eq!(role("x", "y/y", "y"), Some(Role::Unclear));
        assert_eq!(role("", "/", "x"), None);
    }
}
