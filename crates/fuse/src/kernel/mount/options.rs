//! How a file system is mounted and taken off.

use crate::kernel::negotiation::TRANSFER_BYTES_MAX;

/// How a mount looks and what it allows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MountOptions {
    /// What `mount` and `df` show as the device.
    pub source: String,
    /// Shown as `fuse.` and this.
    pub subtype: String,
    /// Other users may use it. An ordinary user needs `user_allow_other` in /etc/fuse.conf.
    pub allow_other: bool,
    /// The kernel checks permission bits and ACLs.
    pub default_permissions: bool,
    /// Largest READ in bytes.
    pub max_read: u32,
    /// Nothing may be changed through it.
    pub read_only: bool,
    /// setuid programs have effect. Root only.
    pub setuid: bool,
    /// Device nodes have effect. Root only.
    pub devices: bool,
    /// Programs may be run.
    pub exec: bool,
    /// The kernel may want times of access to be kept.
    pub access_times: bool,
}

impl Default for MountOptions {
    fn default() -> MountOptions {
        MountOptions {
            source: "glint".into(),
            subtype: "glint".into(),
            allow_other: false,
            default_permissions: true,
            max_read: TRANSFER_BYTES_MAX,
            read_only: false,
            setuid: false,
            devices: false,
            exec: true,
            access_times: true,
        }
    }
}

/// How to take a mount off.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unmount {
    /// Only if nothing uses it; else [`super::MountError::Busy`] names who does, and nothing changes.
    Clean,
    /// Out of sight at once; served until its last user leaves.
    Lazy,
    /// Every request fails from now on, then as `Lazy`. Unwritten pages are lost. Where the kernel lets
    /// only root do the first, as it does for an ordinary user without the control file system: as `Lazy`.
    Abort,
}
