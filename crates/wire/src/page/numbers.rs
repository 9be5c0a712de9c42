//! Numbers of varying length: seven bits a byte, lowest first, the highest bit says that more follow.

/// What bytes are not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Malformed(pub &'static str);

const MORE: u8 = 1 << 7;

pub(super) fn put(out: &mut Vec<u8>, mut number: u64) {
    while number >= u64::from(MORE) {
        out.push(number as u8 | MORE);
        number >>= 7;
    }
    out.push(number as u8);
}

/// The way from one number to another: short both up and down.
pub(super) fn put_step(out: &mut Vec<u8>, from: u64, to: u64) {
    put(out, folded(to.wrapping_sub(from) as i64));
}

/// Small ones of either sign as small ones without.
pub(super) fn folded(number: i64) -> u64 {
    (number << 1 ^ number >> 63) as u64
}

pub(super) fn unfolded(number: u64) -> i64 {
    (number >> 1) as i64 ^ -((number & 1) as i64)
}

/// What is left to read.
pub(super) struct Take<'a>(pub &'a [u8]);

impl<'a> Take<'a> {
    pub fn byte(&mut self) -> Result<u8, Malformed> {
        let (first, rest) = self.0.split_first().ok_or(CUT_SHORT)?;
        self.0 = rest;
        Ok(*first)
    }

    pub fn slice(&mut self, bytes: usize) -> Result<&'a [u8], Malformed> {
        let (slice, rest) = self.0.split_at_checked(bytes).ok_or(CUT_SHORT)?;
        self.0 = rest;
        Ok(slice)
    }

    pub fn number(&mut self) -> Result<u64, Malformed> {
        let mut number = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            let bits = u64::from(byte & !MORE);
            // Of the tenth byte there is room for one bit.
            if bits << shift >> shift != bits {
                break;
            }
            number |= bits << shift;
            if byte & MORE == 0 {
                return Ok(number);
            }
        }
        Err(TOO_LARGE)
    }

    /// A number that fits a smaller type.
    pub fn small<T: TryFrom<u64>>(&mut self) -> Result<T, Malformed> {
        T::try_from(self.number()?).map_err(|_| TOO_LARGE)
    }

    /// Where [`put_step`] leads to.
    pub fn step(&mut self, from: u64) -> Result<u64, Malformed> {
        Ok(from.wrapping_add(unfolded(self.number()?) as u64))
    }
}

const CUT_SHORT: Malformed = Malformed("a page that is cut short");
const TOO_LARGE: Malformed = Malformed("a number that is too large");
