# Holds a file open and mapped, and reads from it in the way that each line of its input names.
import ctypes, os, socket, sys

path, copy = sys.argv[1:3]
fd = os.open(path, os.O_RDONLY)
os.pread(fd, 100, 0)
libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t] + 3 * [ctypes.c_int] + [ctypes.c_long]
PROT_READ, MAP_SHARED = 1, 1
mapped = libc.mmap(None, 1 << 24, PROT_READ, MAP_SHARED, fd, 0)


def told(came, bytes):
    # All that is written is the same letter; what is only cut longer is zeros from end to end.
    is_sound = bytes in (b"y" * came, bytes[:1] * came)
    return came if is_sound else f"{came} with {bytes.count(0)} zeros"


def sendfile(at, count):
    near, far = socket.socketpair()
    sent = os.sendfile(far.fileno(), fd, at, count)
    bytes = near.recv(sent) if sent else b""
    near.close(), far.close()
    return told(sent, bytes)


def splice(at, count):
    near, far = os.pipe()
    moved = os.splice(fd, far, count, offset_src=at)
    bytes = os.read(near, moved) if moved else b""
    os.close(near), os.close(far)
    return told(moved, bytes)


def copied(at, count):
    to = os.open(copy, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
    moved = os.copy_file_range(fd, to, count, at, 0)
    bytes = os.pread(to, moved, 0)
    os.close(to)
    return told(moved, bytes)


def load(at, count):
    # A load behind the end ends its process.
    child = os.fork()
    if child == 0:
        seen = {ctypes.string_at(mapped + place, 1) for place in (at, at + count - 1)}
        os._exit(0 if seen == {b"y"} else 1)
    status = os.waitpid(child, 0)[1]
    return count if status == 0 else f"status {status}"


def read(at, count):
    return len(os.pread(fd, count, at))


def end(at, count):
    return os.lseek(fd, 0, os.SEEK_END) - at


def size(at, count):
    return os.fstat(fd).st_size - at


print("ready", flush=True)
for line in sys.stdin:
    way, at, count = line.split()
    print(globals()[way](int(at), int(count)), flush=True)
