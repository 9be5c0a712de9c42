//! The records of a log: each says which it is, how long it is, and is full of that.

/// Length of the header: an id of 16 hexadecimal digits, a length of 5, two spaces.
const HEADER: usize = 23;
/// How much of a flaw is told.
const EXCERPT: usize = 24;

/// What is in a log.
#[derive(Debug, PartialEq, Eq)]
pub struct Parsed {
    /// The records that are whole, in their order.
    pub records: Vec<u64>,
    /// The first bytes that belong to none.
    pub flaw: Option<String>,
}

/// How long the record `id` is: mostly a line, now and then more than a page.
pub fn length(id: u64) -> usize {
    let mixed = id.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
    match mixed % 16 {
        0 => 4096 + (mixed / 16 % 3000) as usize,
        1..=4 => 500 + (mixed / 16 % 900) as usize,
        _ => HEADER + 1 + (mixed / 16 % 90) as usize,
    }
}

/// The record `id`.
pub fn record(id: u64) -> Vec<u8> {
    let length = length(id);
    let mut bytes = format!("{id:016x} {length:05} ").into_bytes();
    let filler = b'a' + (id % 26) as u8;
    bytes.resize(length - 1, filler);
    bytes.push(b'\n');
    bytes
}

/// The record at the begin of `bytes`, if a whole one is there.
fn first(bytes: &[u8]) -> Option<(u64, usize)> {
    let id = std::str::from_utf8(bytes.get(..16)?).ok()?;
    let id = u64::from_str_radix(id, 16).ok()?;
    let record = record(id);
    bytes.starts_with(&record).then_some((id, record.len()))
}

/// Reads a log. Behind a flaw it goes on with the next line that is a record.
pub fn parse(bytes: &[u8]) -> Parsed {
    let mut parsed = Parsed {
        records: Vec::new(),
        flaw: None,
    };
    let mut at = 0;
    while at < bytes.len() {
        match first(&bytes[at..]) {
            Some((id, length)) => {
                parsed.records.push(id);
                at += length;
            }
            None => {
                let next = (at + 1..bytes.len()).find(|next| first(&bytes[*next..]).is_some());
                let end = next.unwrap_or(bytes.len());
                if parsed.flaw.is_none() {
                    let follower = next.and_then(|next| first(&bytes[next..]));
                    parsed.flaw = Some(describe(&bytes[at..end], at, &parsed.records, follower));
                }
                at = end;
            }
        }
    }
    parsed
}

fn describe(flaw: &[u8], at: usize, before: &[u64], after: Option<(u64, usize)>) -> String {
    let what = match flaw.iter().all(|byte| *byte == 0) {
        true => "NULs".to_owned(),
        false => String::from_utf8_lossy(&flaw[..flaw.len().min(EXCERPT)]).into_owned(),
    };
    let name = |id: Option<u64>| id.map_or("nothing".to_owned(), |id| format!("{id:x}"));
    let (before, after) = (name(before.last().copied()), name(after.map(|(id, _)| id)));
    let length = flaw.len();
    format!("{length} bytes at {at} are {what}, after {before}, before {after}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_records_are_read_and_anything_else_is_a_flaw() {
        let ids = [1 << 40 | 1, 2 << 40 | 7, 3 << 40 | 9];
        let mut log: Vec<u8> = ids.iter().flat_map(|id| record(*id)).collect();
        assert_eq!(parse(&log).records, ids);
        assert_eq!(parse(&log).flaw, None);
        let cut = parse(&log[..log.len() - 1]);
        assert_eq!(cut.records, ids[..2]);
        assert!(cut.flaw.is_some());
        let at = length(ids[0]);
        log[at..at + length(ids[1])].fill(0);
        let holed = parse(&log);
        assert_eq!(holed.records, [ids[0], ids[2]]);
        let flaw = holed.flaw.expect("a flaw");
        assert!(
            flaw.contains("NULs") && flaw.contains(&format!("before {:x}", ids[2])),
            "{flaw}"
        );
    }
}
