//! From bytes to requests: one function for each group of operations.

use super::body::{Body, Fault};
use super::mode::{FallocateMode, LockKind, RenameMode, Whence, XattrMode};
use super::raw;
use super::{
    CopyRequest, Dialect, Forgets, InitRequest, IoctlRequest, LockRequest, Malformed, Op,
    ReleaseRequest, Request, WriteRequest,
};
use crate::kernel::abi::init::{InitIn, InitInTail};
use crate::kernel::abi::{
    EXTENSION_GROUPS, ExtensionHeader, FileLock, InHeader, Opcode, UNIQUE_RESENT,
};
use crate::kernel::open::OpenFlags;
use crate::kernel::setattr::SetAttributes;

impl<'a> Request<'a> {
    /// Parses what one read of the device gave.
    pub fn parse(bytes: &'a [u8], dialect: Dialect) -> Result<Request<'a>, Malformed> {
        let mut body = Body::new(bytes);
        let header: InHeader = body.take().map_err(|fault| Malformed {
            unique: None,
            opcode: 0,
            fault,
        })?;
        let known = Opcode::from_number(header.opcode);
        let unique = known
            .is_none_or(Opcode::wants_answer)
            .then_some(header.unique);
        let malformed = |fault| Malformed {
            unique,
            opcode: header.opcode,
            fault,
        };
        let opcode = known.ok_or(malformed(Fault::Opcode))?;
        Request::parse_known(bytes, &header, opcode, dialect).map_err(malformed)
    }

    fn parse_known(
        bytes: &'a [u8],
        header: &InHeader,
        opcode: Opcode,
        dialect: Dialect,
    ) -> Result<Request<'a>, Fault> {
        if header.len as usize != bytes.len() {
            return Err(Fault::Length);
        }
        let body = &bytes[size_of::<InHeader>()..];
        let extension = usize::from(header.extension_words) * 8;
        let split = body.len().checked_sub(extension).ok_or(Fault::Extension)?;
        let (body, extensions) = body.split_at(split);
        Ok(Request {
            unique: header.unique,
            resent: header.unique & UNIQUE_RESENT != 0,
            nodeid: header.nodeid,
            uid: header.uid,
            gid: header.gid,
            pid: header.pid,
            group: parse_group(extensions)?,
            opcode,
            op: parse_op(opcode, Body::new(body), dialect)?,
        })
    }
}

/// The first supplementary group among the extensions. The kernel sends at most one.
fn parse_group(mut extensions: &[u8]) -> Result<Option<u32>, Fault> {
    while !extensions.is_empty() {
        let mut body = Body::new(extensions);
        let header: ExtensionHeader = body.take().map_err(|_| Fault::Extension)?;
        let size = header.size as usize;
        if size < size_of::<ExtensionHeader>() || size > extensions.len() {
            return Err(Fault::Extension);
        }
        if header.kind == EXTENSION_GROUPS {
            let count: u32 = body.take().map_err(|_| Fault::Extension)?;
            return match count {
                0 => Ok(None),
                _ => body.take().map(Some).map_err(|_| Fault::Extension),
            };
        }
        extensions = &extensions[size.next_multiple_of(8).min(extensions.len())..];
    }
    Ok(None)
}

fn parse_op<'a>(opcode: Opcode, mut body: Body<'a>, dialect: Dialect) -> Result<Op<'a>, Fault> {
    use Opcode as O;
    match opcode {
        O::Lookup | O::Unlink | O::Rmdir | O::Removexattr => parse_name(opcode, body),
        O::Symlink | O::Mknod | O::Mkdir | O::Link | O::Create | O::Tmpfile => {
            parse_creation(opcode, body)
        }
        O::Rename | O::Rename2 => parse_rename(opcode, body),
        O::Forget => Ok(Op::Forget {
            lookups: body.take::<raw::Forget>()?.lookups,
        }),
        O::BatchForget => parse_batch_forget(body),
        O::Init => parse_init(body),
        O::Getattr | O::Setattr | O::Statx | O::Access => parse_attributes(opcode, body),
        O::Open | O::Opendir | O::Release | O::Releasedir | O::Flush => parse_handle(opcode, body),
        O::Read | O::Readdir | O::Readdirplus => parse_read(opcode, body),
        O::Write => parse_write(body),
        O::Fsync | O::Fsyncdir => parse_fsync(opcode, body),
        O::Setxattr | O::Getxattr | O::Listxattr => parse_xattr(opcode, body, dialect),
        O::Getlk | O::Setlk | O::Setlkw => parse_lock(opcode, body),
        O::Interrupt => Ok(Op::Interrupt {
            unique: body.take::<raw::Interrupt>()?.unique,
        }),
        O::Ioctl | O::Poll | O::Bmap | O::NotifyReply => parse_rare(opcode, body),
        O::Fallocate | O::Lseek | O::CopyFileRange | O::CopyFileRange64 => {
            parse_space(opcode, body)
        }
        O::Readlink => Ok(Op::Readlink),
        O::Statfs => Ok(Op::Statfs),
        O::Syncfs => Ok(Op::Syncfs),
        O::Destroy => Ok(Op::Destroy),
    }
}

fn parse_name<'a>(opcode: Opcode, mut body: Body<'a>) -> Result<Op<'a>, Fault> {
    let name = body.name()?;
    Ok(match opcode {
        Opcode::Unlink => Op::Unlink { name },
        Opcode::Rmdir => Op::Rmdir { name },
        Opcode::Removexattr => Op::Removexattr { name },
        _ => Op::Lookup { name },
    })
}

fn parse_creation<'a>(opcode: Opcode, mut body: Body<'a>) -> Result<Op<'a>, Fault> {
    Ok(match opcode {
        Opcode::Symlink => Op::Symlink {
            name: body.name()?,
            target: body.name()?,
        },
        Opcode::Mknod => {
            let raw::Mknod {
                mode, rdev, umask, ..
            } = body.take()?;
            Op::Mknod {
                name: body.name()?,
                mode,
                rdev,
                umask,
            }
        }
        Opcode::Mkdir => {
            let raw::Mkdir { mode, umask } = body.take()?;
            Op::Mkdir {
                name: body.name()?,
                mode,
                umask,
            }
        }
        Opcode::Link => {
            let raw::Link { source } = body.take()?;
            Op::Link {
                source,
                name: body.name()?,
            }
        }
        Opcode::Tmpfile => {
            let raw::Create {
                flags, mode, umask, ..
            } = body.take()?;
            Op::Tmpfile {
                mode,
                umask,
                flags: OpenFlags(flags),
            }
        }
        _ => {
            let raw::Create {
                flags,
                mode,
                umask,
                open_flags,
            } = body.take()?;
            let kill_suid_gid = open_flags & raw::OPEN_KILL_SUIDGID != 0;
            Op::Create {
                name: body.name()?,
                mode,
                umask,
                flags: OpenFlags(flags),
                kill_suid_gid,
            }
        }
    })
}

fn parse_rename<'a>(opcode: Opcode, mut body: Body<'a>) -> Result<Op<'a>, Fault> {
    let (new_parent, flags) = match opcode {
        Opcode::Rename => (body.take::<raw::Rename>()?.new_parent, 0),
        _ => {
            let raw::Rename2 {
                new_parent, flags, ..
            } = body.take()?;
            (new_parent, flags)
        }
    };
    let mode = RenameMode::parse(flags);
    Ok(Op::Rename {
        name: body.name()?,
        new_parent,
        new_name: body.name()?,
        mode,
    })
}

fn parse_batch_forget(mut body: Body<'_>) -> Result<Op<'_>, Fault> {
    let raw::BatchForget { count, .. } = body.take()?;
    let size = count
        .checked_mul(size_of::<raw::ForgetOne>() as u32)
        .ok_or(Fault::Short)?;
    Ok(Op::BatchForget(Forgets {
        bytes: body.data(size)?,
    }))
}

fn parse_init(mut body: Body<'_>) -> Result<Op<'_>, Fault> {
    let InitIn {
        major,
        minor,
        max_readahead,
        flags,
    } = body.take()?;
    // Kernels before 7.36 end here.
    let flags2 = body.take::<InitInTail>().map_or(0, |tail| tail.flags2);
    let flags = u64::from(flags) | u64::from(flags2) << 32;
    Ok(Op::Init(InitRequest {
        major,
        minor,
        max_readahead,
        flags,
    }))
}

fn parse_attributes(opcode: Opcode, mut body: Body<'_>) -> Result<Op<'_>, Fault> {
    let handle = |flags: u32, fh: u64| (flags & raw::GETATTR_FH != 0).then_some(fh);
    Ok(match opcode {
        Opcode::Setattr => Op::Setattr(SetAttributes::parse(&body.take()?)?),
        Opcode::Access => Op::Access {
            mask: body.take::<raw::Access>()?.mask,
        },
        Opcode::Statx => {
            let raw::Statx {
                flags,
                fh,
                sx_flags,
                sx_mask,
                ..
            } = body.take()?;
            Op::Statx {
                handle: handle(flags, fh),
                flags: sx_flags,
                mask: sx_mask,
            }
        }
        _ => {
            let raw::Getattr { flags, fh, .. } = body.take()?;
            Op::Getattr {
                handle: handle(flags, fh),
            }
        }
    })
}

fn parse_handle(opcode: Opcode, mut body: Body<'_>) -> Result<Op<'_>, Fault> {
    Ok(match opcode {
        Opcode::Open => {
            let raw::Open { flags, open_flags } = body.take()?;
            let kill_suid_gid = open_flags & raw::OPEN_KILL_SUIDGID != 0;
            Op::Open {
                flags: OpenFlags(flags),
                kill_suid_gid,
            }
        }
        Opcode::Opendir => Op::Opendir {
            flags: OpenFlags(body.take::<raw::Open>()?.flags),
        },
        Opcode::Release => Op::Release(release(&body.take()?)),
        Opcode::Releasedir => Op::Releasedir(release(&body.take()?)),
        _ => {
            let raw::Flush { fh, lock_owner, .. } = body.take()?;
            Op::Flush {
                handle: fh,
                lock_owner,
            }
        }
    })
}

fn release(raw: &raw::Release) -> ReleaseRequest {
    let unlock = raw.release_flags & raw::RELEASE_FLOCK_UNLOCK != 0;
    ReleaseRequest {
        handle: raw.fh,
        flags: OpenFlags(raw.flags),
        flush: raw.release_flags & raw::RELEASE_FLUSH != 0,
        flock_owner: unlock.then_some(raw.lock_owner),
    }
}

fn parse_read(opcode: Opcode, mut body: Body<'_>) -> Result<Op<'_>, Fault> {
    let raw::Read {
        fh: handle,
        offset,
        size,
        read_flags,
        lock_owner,
        flags,
        ..
    } = body.take()?;
    Ok(match opcode {
        Opcode::Readdir => Op::Readdir {
            handle,
            offset,
            size,
        },
        Opcode::Readdirplus => Op::Readdirplus {
            handle,
            offset,
            size,
        },
        _ => Op::Read {
            handle,
            offset,
            size,
            lock_owner: (read_flags & raw::READ_LOCKOWNER != 0).then_some(lock_owner),
            flags: OpenFlags(flags),
        },
    })
}

fn parse_write(mut body: Body<'_>) -> Result<Op<'_>, Fault> {
    let write: raw::Write = body.take()?;
    let has = |flag: u32| write.write_flags & flag != 0;
    Ok(Op::Write(WriteRequest {
        handle: write.fh,
        offset: write.offset,
        data: body.data(write.size)?,
        from_cache: has(raw::WRITE_CACHE),
        kill_suid_gid: has(raw::WRITE_KILL_SUIDGID),
        lock_owner: has(raw::WRITE_LOCKOWNER).then_some(write.lock_owner),
        flags: OpenFlags(write.flags),
    }))
}

fn parse_fsync(opcode: Opcode, mut body: Body<'_>) -> Result<Op<'_>, Fault> {
    let raw::Fsync {
        fh: handle, flags, ..
    } = body.take()?;
    let data_only = flags & raw::FSYNC_FDATASYNC != 0;
    Ok(match opcode {
        Opcode::Fsyncdir => Op::Fsyncdir { handle, data_only },
        _ => Op::Fsync { handle, data_only },
    })
}

fn parse_xattr<'a>(opcode: Opcode, mut body: Body<'a>, dialect: Dialect) -> Result<Op<'a>, Fault> {
    if opcode != Opcode::Setxattr {
        let raw::Getxattr { size, .. } = body.take()?;
        return Ok(match opcode {
            Opcode::Listxattr => Op::Listxattr { size },
            _ => Op::Getxattr {
                name: body.name()?,
                size,
            },
        });
    }
    let raw::Setxattr { size, flags } = body.take()?;
    let setxattr_flags = match dialect.long_setxattr {
        true => body.take::<raw::SetxattrTail>()?.setxattr_flags,
        false => 0,
    };
    Ok(Op::Setxattr {
        name: body.name()?,
        value: body.data(size)?,
        mode: XattrMode::parse(flags),
        acl_kills_sgid: setxattr_flags & raw::SETXATTR_ACL_KILL_SGID != 0,
    })
}

fn parse_lock(opcode: Opcode, mut body: Body<'_>) -> Result<Op<'_>, Fault> {
    let raw::Lock {
        fh,
        owner,
        lock:
            FileLock {
                start,
                end,
                kind,
                pid,
            },
        flags,
        ..
    } = body.take()?;
    let lock = LockRequest {
        handle: fh,
        owner,
        start,
        end,
        kind: LockKind::parse(kind),
        pid,
        flock: flags & raw::LK_FLOCK != 0,
    };
    Ok(match opcode {
        Opcode::Getlk => Op::Getlk(lock),
        _ => Op::Setlk {
            lock,
            wait: opcode == Opcode::Setlkw,
        },
    })
}

fn parse_rare(opcode: Opcode, mut body: Body<'_>) -> Result<Op<'_>, Fault> {
    Ok(match opcode {
        Opcode::Ioctl => {
            let raw::Ioctl {
                fh,
                flags,
                command,
                argument,
                in_size,
                out_size,
            } = body.take()?;
            let data = body.data(in_size)?;
            Op::Ioctl(IoctlRequest {
                handle: fh,
                on_directory: flags & raw::IOCTL_DIR != 0,
                command,
                argument,
                data,
                out_size,
            })
        }
        Opcode::Poll => {
            let raw::Poll {
                fh,
                kernel_handle,
                flags,
                events,
            } = body.take()?;
            let notify = flags & raw::POLL_SCHEDULE_NOTIFY != 0;
            Op::Poll {
                handle: fh,
                kernel_handle,
                events,
                notify,
            }
        }
        Opcode::Bmap => {
            let raw::Bmap {
                block, block_size, ..
            } = body.take()?;
            Op::Bmap { block, block_size }
        }
        _ => {
            let raw::Retrieved { offset, size, .. } = body.take()?;
            Op::NotifyReply {
                offset,
                data: body.data(size)?,
            }
        }
    })
}

fn parse_space(opcode: Opcode, mut body: Body<'_>) -> Result<Op<'_>, Fault> {
    Ok(match opcode {
        Opcode::Fallocate => {
            let raw::Fallocate {
                fh,
                offset,
                length,
                mode,
                ..
            } = body.take()?;
            Op::Fallocate {
                handle: fh,
                offset,
                length,
                mode: FallocateMode::parse(mode),
            }
        }
        Opcode::Lseek => {
            let raw::Lseek {
                fh, offset, whence, ..
            } = body.take()?;
            Op::Lseek {
                handle: fh,
                offset,
                whence: Whence::parse(whence),
            }
        }
        _ => Op::CopyFileRange(body.take::<raw::CopyFileRange>()?.into()),
    })
}

impl From<raw::CopyFileRange> for CopyRequest {
    fn from(copy: raw::CopyFileRange) -> CopyRequest {
        CopyRequest {
            handle_in: copy.fh_in,
            offset_in: copy.offset_in,
            nodeid_out: copy.nodeid_out,
            handle_out: copy.fh_out,
            offset_out: copy.offset_out,
            length: copy.length,
            flags: copy.flags,
        }
    }
}
