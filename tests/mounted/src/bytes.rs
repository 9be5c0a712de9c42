//! Bytes that tests write and compare. Test programs are not optimised, so little runs for each byte.

/// `length` bytes of which no eight in a row, at a multiple of eight, come twice; others for each `start`.
pub fn fresh_bytes(start: u64, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length.next_multiple_of(8)];
    for (at, word) in (0..).zip(bytes.chunks_exact_mut(8)) {
        let fresh = start.wrapping_add(u64::wrapping_mul(at, 0x9E37_79B9_7F4A_7C15));
        word.copy_from_slice(&fresh.to_le_bytes());
    }
    bytes.truncate(length);
    bytes
}

/// Where `seen` is not as the `truth`, which has as many bytes or more.
pub fn first_difference(seen: &[u8], truth: &[u8]) -> Option<usize> {
    match seen == &truth[..seen.len()] {
        true => None,
        false => seen.iter().zip(truth).position(|(one, other)| one != other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_byte_that_differs_is_found() {
        let bytes = fresh_bytes(7, 21);
        assert_eq!(bytes.len(), 21);
        assert_eq!(first_difference(&bytes[..20], &bytes), None);
        let mut other = bytes.clone();
        other[17] ^= 1;
        assert_eq!(first_difference(&other, &bytes), Some(17));
        assert_ne!(fresh_bytes(8, 21), bytes);
    }
}
