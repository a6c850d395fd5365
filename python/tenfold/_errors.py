"""Exceptions, by who must act: the data, the caller, a limit, this build, the machine.

Each is also a subclass of a built-in exception, so code that does not know tenfold can catch it.
"""


class Error(Exception):
    """Anything that tenfold raises on purpose."""


class DataError(Error, ValueError):
    """The data is bad: corrupt, truncated, or of another format."""


class UnsupportedError(Error, NotImplementedError):
    """The data may be fine, but this build cannot work with it."""


class ArgumentError(Error, ValueError):
    """The caller passed something that cannot work."""


class DtypeError(ArgumentError, TypeError):
    """An object of the wrong type, or an array of a dtype that tenfold does not store."""


class WrongBaseError(ArgumentError):
    """A delta belongs to another version of the tensor: one was left out, or they came in another order."""


class LimitError(Error, ValueError):
    """A limit of the caller stopped the work: ``max_bytes`` cannot be met, or a blob asks for more than allowed."""


class MachineError(Error, OSError):
    """The machine failed: files, a full disk, permissions, threads."""


class NotFoundError(MachineError, FileNotFoundError):
    """A file or folder does not exist."""


class EngineUnavailableError(MachineError):
    """This GPU has no engine for it, or its driver lacks the library; the message says which."""


class PeerError(MachineError, ConnectionError):
    """Another rank is gone, or did not answer in time."""


class RawDtypeWarning(UserWarning):
    """numpy has no such dtype without ml_dtypes: an array holds the bits as unsigned integers."""
