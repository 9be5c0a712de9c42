//! Which service a sub-message speaks to. The operation itself is the first byte of the body.

/// Requests to and replies of the MGS.
pub const MGS: u16 = 0x10;
/// Requests to and replies of an MDT.
pub const MDT: u16 = 0x20;
/// Callbacks of an MDT to its clients.
pub const MDT_CALLBACK: u16 = 0x21;
/// Requests to and replies of an OST.
pub const OST: u16 = 0x30;
/// Callbacks of an OST to its clients.
pub const OST_CALLBACK: u16 = 0x31;
