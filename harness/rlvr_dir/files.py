"""Write files safely: a file has the old or the new content, never half of it, and a full disk is a clear error."""

import errno
import os
import re
import secrets
from collections.abc import Iterable
from pathlib import Path

from rlvr_dir.errors import UserError

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
REFUSALS = (
    *FULL, errno.EACCES, errno.EPERM, errno.EROFS, errno.ENAMETOOLONG, errno.ENOTDIR, errno.EISDIR, errno.ELOOP,
)  # fmt: skip
LONGEST_NAME = 200  # characters of a file's name, which file systems limit to 255 bytes
_PROBE = 65_536  # bytes; with less free space nothing useful fits
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]*")


def shipped(name: str) -> Path:
    """Return a file or folder that ships with the program: from a checkout, or the copy in the installed package."""
    package = Path(__file__).parent
    copy = package / "_data" / name
    return copy if copy.exists() else package.parents[1] / name


def disk_error(error: OSError, path: Path, kept: str) -> UserError:
    """Return the error for a write that failed; `kept` describes what is safe."""
    reason = "no space is left for it" if error.errno in FULL else (error.strerror or str(error))
    return UserError(f"{path} cannot be written ({reason}); {kept}")


def folder_name(argument: str, name: str) -> str:
    """Return `name` if it can be a folder's name.

    Raises:
        UserError: It contains a slash, a space or similar, or is too long.
    """
    if len(name) > LONGEST_NAME:
        raise UserError(
            f"... has {len(name)} characters", argument=argument, value=name[:40], accepted=f"at most {LONGEST_NAME}"
        )
    if not _NAME.fullmatch(name):
        raise UserError(
            "is not allowed: it names a folder",
            argument=argument,
            value=name,
            accepted="letters, digits, '.', '_' and '-'",
        )
    return name


def write_file(
    path: Path, data: str | bytes | Iterable[bytes], kept: str = "what was there before is untouched"
) -> None:
    """Replace `path` by `data`, whole or in pieces: write a new file beside it, sync, rename over it, sync the folder.

    Links are not followed, neither for the new file nor at `path`. Text is written as UTF-8; a lone surrogate (as in an
    argument that is not UTF-8) is written like JSON's escape.

    Raises:
        UserError: The file cannot be written.
    """
    beside = path.with_name(f".{path.name[:60]}.{secrets.token_hex(4)}.new")
    data = data.encode("utf-8", "backslashreplace") if isinstance(data, str) else data
    created = False
    try:
        fd = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
        created = True
        try:
            for piece in (data,) if isinstance(data, bytes) else data:
                view = memoryview(piece)
                while view:  # the system may write only a part
                    view = view[os.write(fd, view) :]
            os.fsync(fd)
        finally:
            os.close(fd)
        os.replace(beside, path)
        sync_folder(path.parent)
    except BaseException as error:
        if created:
            beside.unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise disk_error(error, path, kept) from None
        raise


def check_writable(*folders: Path, make: bool = True) -> None:
    """Create folders for later files, and write a test file into each, before anything is computed for them.

    Without `make` no folder is created. The test file is written into the nearest existing folder above. (A folder that
    is created and removed again could be removed while another process begins there.)

    Raises:
        UserError: One cannot be created or written to, or its disk is full.
    """
    for folder in folders:
        if make:
            make_folder(folder)
        probe = _nearest_folder(folder) / ".writable"
        write_file(probe, bytes(_PROBE), "nothing was begun")
        probe.unlink(missing_ok=True)


def check_output(out: Path) -> None:
    """Check a file that will be written, like `check_writable` for its folder.

    Raises:
        UserError: It is a folder, or its folder cannot be written to.
    """
    if out.is_dir():
        raise UserError("is a folder", argument="out", value=str(out), accepted="a file")
    check_writable(out.parent)


def sync_folder(folder: Path) -> None:
    """Make names that were created in or renamed into `folder` durable."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def make_folder(folder: Path) -> None:
    """Create `folder` and its parents.

    Raises:
        UserError: It cannot be created.
    """
    _nearest_folder(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        sync_folder(folder.parent)
    except OSError as error:
        raise disk_error(error, folder, "nothing was written") from None


def _nearest_folder(folder: Path) -> Path:
    """Return the folder, or the nearest existing one above it.

    Raises:
        UserError: The path is not a folder.
    """
    existing = next(parent for parent in (folder, *folder.absolute().parents) if os.path.lexists(parent))
    if not existing.is_dir():
        raise UserError(f"{existing} is not a folder", accepted="a folder, or the name of one that is made")
    return existing


def set_aside(path: Path) -> Path:
    """Give a damaged file a second name, `<stem>.corrupt-<n><suffix>`, so that it can be replaced."""
    n = 1
    while True:
        aside = path.with_name(f"{path.stem}.corrupt-{n}{path.suffix}")
        try:
            os.link(path, aside)
            return aside
        except FileExistsError:
            n += 1
        except OSError:  # a file system without hard links
            write_file(aside, path.read_bytes())
            return aside
