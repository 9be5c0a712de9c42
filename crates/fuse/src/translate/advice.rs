//! `GLINT_IOC_PREFETCH`: what a program says it will need. The format is docs/advise.md's.

use base::{FsError, Name};
use client::{Advice, HandleId, Heard, NameRange};
use zerocopy::{FromBytes, Immutable, KnownLayout};

use super::Asked;
use crate::kernel::{Errno, IoctlRequest};

/// `_IOW('G', 1, struct glint_prefetch)`: written by the caller, 4096 bytes.
const PREFETCH: u32 = 1 << 30 | (size_of::<Prefetch>() as u32) << 16 | (b'G' as u32) << 8 | 1;

/// The version of the format.
const VERSION: u32 = 1;
const RANGE: u32 = 1;
const LIST: u32 = 2;
const TREE: u32 = 3;
/// Flag of a list: it goes on where the one before ends.
const MORE: u32 = 1;
/// Bytes of text.
const TEXT_BYTES: usize = 4032;

/// `struct glint_prefetch`.
#[repr(C)]
#[derive(FromBytes, KnownLayout, Immutable)]
struct Prefetch {
    version: u32,
    kind: u32,
    flags: u32,
    width: u32,
    first: u64,
    last: u64,
    step: u64,
    text_bytes: u32,
    reserved: [u32; 5],
    text: [u8; TEXT_BYTES],
}

const _: () = assert!(size_of::<Prefetch>() == 4096);

/// Answers at once; any other command, and this one on anything but a directory, is `ENOTTY`.
pub(super) fn ioctl(asked: Asked, request: IoctlRequest<'_>) {
    if request.command != PREFETCH || !request.on_directory {
        return refuse(&asked, Errno::ENOTTY);
    }
    let handle = HandleId(request.handle);
    let advised = parse(request.data).and_then(|advice| asked.client().advise(handle, advice));
    match advised {
        Ok(Heard::Taken) => drop(asked.replier().map(|replier| replier.ioctl(0, &[]))),
        Ok(Heard::UnderWay) => refuse(&asked, Errno::EALREADY),
        Err(failure) => asked.error(failure),
    }
}

fn refuse(asked: &Asked, errno: Errno) {
    if let Some(replier) = asked.replier() {
        replier.error(errno);
    }
}

/// What the bytes say. `Invalid`: nothing that this version knows, or nothing that makes sense.
fn parse(bytes: &[u8]) -> Result<Advice, FsError> {
    let said = &Prefetch::read_from_bytes(bytes).map_err(|_| FsError::Invalid)?;
    let text_bytes = said.text_bytes as usize;
    let (text, rest) = said
        .text
        .split_at_checked(text_bytes)
        .ok_or(FsError::Invalid)?;
    let is_clean = said.reserved == [0; 5] && rest.iter().all(|byte| *byte == 0);
    let flags = if said.kind == LIST { MORE } else { 0 };
    if said.version != VERSION || !is_clean || said.flags & !flags != 0 {
        return Err(FsError::Invalid);
    }
    let is_plain = (said.width, said.first, said.last, said.step) == (0, 0, 0, 0);
    match said.kind {
        RANGE => range(said, text),
        LIST if is_plain => list(text, said.flags & MORE != 0),
        TREE if is_plain && text.is_empty() => Ok(Advice::Tree),
        _ => Err(FsError::Invalid),
    }
}

/// The text is the prefix, a zero byte, and the suffix.
fn range(said: &Prefetch, text: &[u8]) -> Result<Advice, FsError> {
    let mut parts = text.split(|byte| *byte == 0);
    let (Some(prefix), Some(suffix), None) = (parts.next(), parts.next(), parts.next()) else {
        return Err(FsError::Invalid);
    };
    Ok(Advice::Range(NameRange {
        prefix: prefix.to_vec(),
        suffix: suffix.to_vec(),
        width: said.width as usize,
        first: said.first,
        last: said.last,
        step: said.step,
    }))
}

/// The text is names with a zero byte between them; one after the last is fine.
fn list(text: &[u8], more: bool) -> Result<Advice, FsError> {
    let text = text.strip_suffix(&[0]).unwrap_or(text);
    let names = text.split(|byte| *byte == 0).map(Name::new);
    let names: Result<Vec<Name>, _> = names.collect();
    let names = names.map_err(|_| FsError::Invalid)?;
    Ok(Advice::List { names, more })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Header fields as u32 words: version, kind, flags, width, then first, last, step; then text.
    fn said(head: [u32; 4], numbers: [u64; 3], text: &[u8]) -> Vec<u8> {
        let words = head.into_iter().flat_map(u32::to_ne_bytes);
        let numbers = numbers.into_iter().flat_map(u64::to_ne_bytes);
        let length = (text.len() as u32).to_ne_bytes();
        let bytes = words.chain(numbers).chain(length).chain([0; 20]);
        let mut bytes: Vec<u8> = bytes.chain(text.iter().copied()).collect();
        bytes.resize(4096, 0);
        bytes
    }

    #[test]
    fn the_command_is_what_the_document_says() {
        assert_eq!(PREFETCH, 0x5000_4701);
    }

    #[test]
    fn each_kind_is_understood() {
        let parsed = parse(&said([1, RANGE, 0, 4], [1, 240, 2], b"shot\0.exr"));
        let range = NameRange {
            prefix: b"shot".to_vec(),
            suffix: b".exr".to_vec(),
            width: 4,
            first: 1,
            last: 240,
            step: 2,
        };
        assert_eq!(parsed, Ok(Advice::Range(range)));
        for (text, flags) in [(&b"b\0a"[..], 0), (b"b\0a\0", MORE)] {
            let names = ["b", "a"].map(|name| Name::try_from(name).unwrap());
            let list = Advice::List {
                names: names.to_vec(),
                more: flags == MORE,
            };
            assert_eq!(parse(&said([1, LIST, flags, 0], [0; 3], text)), Ok(list));
        }
        assert_eq!(parse(&said([1, TREE, 0, 0], [0; 3], b"")), Ok(Advice::Tree));
    }

    #[test]
    fn what_is_not_understood_is_refused() {
        let none = [0; 3];
        let long = [b'x'; 256];
        let wrong = [
            said([0, TREE, 0, 0], none, b""),
            said([2, TREE, 0, 0], none, b""),
            said([1, 0, 0, 0], none, b""),
            said([1, 4, 0, 0], none, b""),
            said([1, TREE, MORE, 0], none, b""),
            said([1, TREE, 0, 0], none, b"x"),
            said([1, TREE, 0, 0], [0, 0, 1], b""),
            said([1, LIST, 2, 0], none, b"a"),
            said([1, LIST, 0, 1], none, b"a"),
            said([1, LIST, 0, 0], [1, 0, 0], b"a"),
            said([1, LIST, 0, 0], none, b""),
            said([1, LIST, 0, 0], none, b"\0"),
            said([1, LIST, 0, 0], none, b"a\0\0b"),
            said([1, LIST, 0, 0], none, b"a/b"),
            said([1, LIST, 0, 0], none, b"a\0.."),
            said([1, LIST, 0, 0], none, &long),
            said([1, RANGE, MORE, 0], [1, 2, 1], b"a\0b"),
            said([1, RANGE, 0, 0], [1, 2, 1], b"ab"),
            said([1, RANGE, 0, 0], [1, 2, 1], b"a\0b\0c"),
        ];
        for (number, bytes) in wrong.iter().enumerate() {
            assert_eq!(parse(bytes), Err(FsError::Invalid), "the {number}.");
        }
        let fine = said([1, LIST, 0, 0], none, b"a");
        for changed in [44, 63, 65, 4095] {
            let mut bytes = fine.clone();
            bytes[changed] = 1;
            assert_eq!(parse(&bytes), Err(FsError::Invalid), "byte {changed}");
        }
        let mut long = fine.clone();
        long[40..44].copy_from_slice(&u32::MAX.to_ne_bytes());
        assert_eq!(parse(&long), Err(FsError::Invalid));
        assert_eq!(parse(&fine[..4095]), Err(FsError::Invalid));
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_hint_or_refused(head in proptest::array::uniform4(0u32..5),
            numbers in any::<[u64; 3]>(), text in proptest::collection::vec(any::<u8>(), 0..4032)) {
            if let Ok(Advice::Range(range)) = parse(&said(head, numbers, &text)) {
                let _ = range.check();
            }
        }
    }
}
