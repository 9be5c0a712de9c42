//! Rules for extended attributes that clients and the MDT share.

use base::FsError;
use base::limits::XATTR_NAME_BYTES_MAX;

use crate::attr::FileKind;

/// The namespace is one of ours, and open to this kind of file.
pub fn check_name(name: &[u8], kind: FileKind) -> Result<(), FsError> {
    if name.len() > XATTR_NAME_BYTES_MAX {
        return Err(FsError::Range);
    }
    let prefixes: [&[u8]; 3] = [b"user.", b"trusted.", b"security."];
    let Some(prefix) = prefixes.iter().find(|prefix| name.starts_with(prefix)) else {
        return Err(FsError::NotSupported);
    };
    let plain = matches!(kind, FileKind::Regular | FileKind::Directory);
    if prefix == &prefixes[0] && !plain {
        return Err(FsError::NotPermitted);
    }
    if name.len() == prefix.len() || name.contains(&0) {
        return Err(FsError::Invalid);
    }
    Ok(())
}
