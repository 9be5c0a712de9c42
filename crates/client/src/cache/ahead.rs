//! What of a file came ahead of who will ask for it.

/// Names a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct StreamId(pub u64);

/// What statahead has to do with a file's bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Ahead {
    /// Nothing.
    #[default]
    No,
    /// They are on their way.
    Coming,
    /// They came with a stream, and were not read yet.
    Came(StreamId),
    /// They could not be had without disturbing somebody.
    Refused,
}

/// What statahead has to do with a file's size.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Sized {
    /// Nothing.
    #[default]
    No,
    /// It was asked for ahead of who wants it.
    Ahead,
    /// It was, and somebody wanted it since.
    Used,
}

/// Names a walk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct WalkId(pub u64);
