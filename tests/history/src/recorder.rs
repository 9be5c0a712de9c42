//! Writes a process's calls down, each before it begins and again when it has returned, and reads
//! them back. Of a process that is killed the last call is known to have begun.

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;

use crate::clock::now;
use crate::event::{Call, Event, NEVER, Outcome};
use crate::object::Object;

/// The record of one process.
pub struct Recorder {
    file: File,
}

impl Recorder {
    /// A new one in the local file `path`, of a process on a mount.
    pub fn new(path: &Path, process: u32, mount: u32) -> io::Result<Recorder> {
        let mut file = File::create(path)?;
        writeln!(file, "{process} {mount}")?;
        Ok(Recorder { file })
    }

    fn line(&mut self, line: &str) {
        // A history with holes would be believed.
        let written = self.file.write_all(line.as_bytes());
        written.expect("the local disk takes the record");
    }

    /// Makes one system call that is about these objects. `work` says what came of each.
    pub fn calls(
        &mut self,
        how: &str,
        about: &[(Object, Call)],
        work: impl FnOnce() -> Vec<Outcome>,
    ) -> Vec<Outcome> {
        self.calls_through(how, about, || (work(), 0))
    }

    /// The same; `work` says through which open file, too.
    pub fn calls_through(
        &mut self,
        how: &str,
        about: &[(Object, Call)],
        work: impl FnOnce() -> (Vec<Outcome>, u64),
    ) -> Vec<Outcome> {
        let parts: Vec<String> = about.iter().map(|(o, c)| format!("{o} {c}")).collect();
        self.line(&format!("B {} {how};{}\n", now(), parts.join(";")));
        let (outcomes, file) = work();
        let end = now();
        let parts: Vec<String> = outcomes.iter().map(Outcome::to_string).collect();
        self.line(&format!("E {end} {file};{}\n", parts.join(";")));
        outcomes
    }

    /// The same about one object.
    pub fn call(
        &mut self,
        how: &str,
        object: Object,
        call: Call,
        work: impl FnOnce() -> Outcome,
    ) -> Outcome {
        self.call_through(how, object, call, || (work(), 0))
    }

    /// The same; `work` says through which open file, too.
    pub fn call_through(
        &mut self,
        how: &str,
        object: Object,
        call: Call,
        work: impl FnOnce() -> (Outcome, u64),
    ) -> Outcome {
        let mut outcomes = self.calls_through(how, &[(object, call)], || {
            let (outcome, file) = work();
            (vec![outcome], file)
        });
        outcomes.pop().unwrap_or(Outcome::Nothing)
    }
}

/// The calls in a record, in their order.
pub fn parse(text: &str) -> Result<Vec<Event>, String> {
    let mut lines = text.lines();
    let head = lines.next().ok_or("a record without a head")?;
    let (process, mount) = head.split_once(' ').ok_or("a head without a mount")?;
    let number = |word: &str| word.parse().map_err(|_| format!("no number: {word}"));
    let (process, mount) = (number(process)?, number(mount)?);
    let mut events: Vec<Event> = Vec::new();
    let mut open = 0;
    for line in lines {
        let mut parts = line.split(';');
        let head: Vec<&str> = parts.next().unwrap_or_default().split(' ').collect();
        match head[..] {
            ["B", begin, how] => {
                open = events.len();
                let begin = begin.parse().map_err(|_| format!("no time: {line}"))?;
                for part in parts {
                    let (object, call) = part.split_once(' ').ok_or(format!("no call: {part}"))?;
                    events.push(Event {
                        process,
                        mount,
                        begin,
                        end: NEVER,
                        object: object.parse()?,
                        how: how.to_owned(),
                        file: 0,
                        call: call.parse()?,
                        outcome: Outcome::Nothing,
                    });
                }
            }
            ["E", end, file] => {
                let end = end.parse().map_err(|_| format!("no time: {line}"))?;
                let file = file.parse().map_err(|_| format!("no file: {line}"))?;
                for (event, outcome) in events[open..].iter_mut().zip(parts) {
                    (event.end, event.file, event.outcome) = (end, file, outcome.parse()?);
                }
            }
            // The last line of a process that was killed as it wrote.
            _ => break,
        }
    }
    Ok(events)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::object::Kind;

    #[test]
    fn what_is_written_down_is_read_back_and_the_last_call_may_be_open() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("record");
        let log = Object::whole(Kind::Log, 7);
        let block = |part| Object {
            kind: Kind::Block,
            number: 1,
            part,
        };
        let mut recorder = Recorder::new(&path, 3, 1).expect("a file");
        recorder.call("append", log, Call::Append(0x1f), || Outcome::Done);
        let about = [(block(2), Call::Read), (block(3), Call::Read)];
        recorder.calls("pread", &about, || {
            vec![
                Outcome::Value(9),
                Outcome::Flawed("two values; torn".into()),
            ]
        });
        recorder.call_through("read", log, Call::ReadAll, || {
            (Outcome::Gapped(vec![1, 2], "NULs".into()), 7)
        });
        recorder.line("B 5 read;log:7:0 readall\n");
        let text = std::fs::read_to_string(&path).expect("it is there");
        let events = parse(&text).expect("it can be read");
        assert_eq!(events.len(), 5);
        assert_eq!((events[0].process, events[0].mount), (3, 1));
        assert_eq!(events[0].call, Call::Append(0x1f));
        assert!(events[0].begin <= events[0].end && events[0].end <= events[1].begin);
        assert_eq!(events[1].outcome, Outcome::Value(9));
        assert_eq!(
            events[2].outcome,
            Outcome::Flawed("two_values__torn".into())
        );
        let gapped = Outcome::Gapped(vec![1, 2], "NULs".into());
        assert_eq!((events[3].file, &events[3].outcome), (7, &gapped));
        assert_eq!(
            (events[4].end, &events[4].outcome),
            (NEVER, &Outcome::Nothing)
        );
    }
}
