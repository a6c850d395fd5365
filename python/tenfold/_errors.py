"""Exceptions, by who must act: the data, the caller, a limit, this build, the machine.

Each is also a built-in exception, so that code which knows nothing of tenfold catches what it expects to.
"""


class Error(Exception):
    """Anything that tenfold raises on purpose."""


class DataError(Error, ValueError):
    """The data is bad: corrupt, cut off, or not tenfold's."""


class UnsupportedError(Error, NotImplementedError):
    """The data may be fine, but this build cannot work with it."""


class ArgumentError(Error, ValueError):
    """The caller passed something that cannot work."""


class DtypeError(ArgumentError, TypeError):
    """An object of the wrong type, or an array of a dtype that tenfold does not store."""


class LimitError(Error, ValueError):
    """A limit of the caller stopped the work: ``max_bytes`` cannot be met, or a blob asks for more than is allowed."""


class MachineError(Error, OSError):
    """The machine failed: files, a full disk, permissions, threads."""


class NotFoundError(MachineError, FileNotFoundError):
    """A file or folder is not there."""


class RawDtypeWarning(UserWarning):
    """numpy has no such dtype without ml_dtypes: an array holds the bits as unsigned integers."""
