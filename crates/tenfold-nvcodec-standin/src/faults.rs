//! What the library can be told to do wrong, and what it is like.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Something that a test sets to a number. A misbehaviour happens that often, for ever where it is negative; a property has that value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(i32)]
#[non_exhaustive]
pub enum Fault {
    /// Decoding a picture reports a lost device.
    DecodeDeviceLost = 1,
    /// A picture is damaged, and its status says that this was concealed.
    Conceal = 2,
    /// A picture is damaged, and nothing says so.
    ConcealSilently = 3,
    /// The parser reports pictures that are 16 samples wider.
    WrongSize = 4,
    /// The parser loses a picture.
    LosePicture = 5,
    /// Mapping a picture blocks until this is set to 0.
    DecodeHang = 6,
    /// Property: how many decoders may be open. 32.
    MaxDecoders = 7,
    /// Creating a decoder fails: the engine is not there.
    NoDecoder = 8,
    /// Property: decoding engines. 3.
    DecodeEngines = 9,
    /// Mapping a picture fails.
    MapFails = 10,
    /// Property: engines that decode JPEG. 4.
    JpegEngines = 11,

    /// Property: how many encoding sessions may be open. 5.
    MaxSessions = 32,
    /// Opening a session fails: the device has no encoder.
    NoEncoder = 33,
    /// Encoding reports a lost device.
    EncodeDeviceLost = 34,
    /// Encoding a picture fails.
    EncodeFails = 35,
    /// Locking a coded picture blocks until this is set to 0.
    EncodeHang = 36,
    /// Property: the newest version of the interface, major × 16 + minor. 12.1.
    ApiVersion = 37,
    /// Locking a coded picture fails.
    LockFails = 38,
    /// Initialising a session fails.
    InitializeFails = 39,
    /// Registering device memory fails.
    RegisterFails = 40,
    /// Property: encoding engines. 2.
    EncodeEngines = 41,
    /// Changing a session's settings fails.
    ReconfigureFails = 42,
    /// Property: whether luma alone can be encoded. 0.
    Monochrome = 43,
    /// A picture is coded from other samples, and nothing says so.
    EncodeDamages = 44,
}

impl Fault {
    const ALL: [Fault; 24] = [
        Fault::DecodeDeviceLost,
        Fault::Conceal,
        Fault::ConcealSilently,
        Fault::WrongSize,
        Fault::LosePicture,
        Fault::DecodeHang,
        Fault::MaxDecoders,
        Fault::NoDecoder,
        Fault::DecodeEngines,
        Fault::MapFails,
        Fault::JpegEngines,
        Fault::MaxSessions,
        Fault::NoEncoder,
        Fault::EncodeDeviceLost,
        Fault::EncodeFails,
        Fault::EncodeHang,
        Fault::ApiVersion,
        Fault::LockFails,
        Fault::InitializeFails,
        Fault::RegisterFails,
        Fault::EncodeEngines,
        Fault::ReconfigureFails,
        Fault::Monochrome,
        Fault::EncodeDamages,
    ];

    pub(crate) fn from_number(number: i32) -> Option<Fault> {
        Fault::ALL.into_iter().find(|f| *f as i32 == number)
    }

    fn default(self) -> i64 {
        match self {
            Fault::MaxDecoders => 32,
            Fault::DecodeEngines => 3,
            Fault::JpegEngines => 4,
            Fault::MaxSessions => 5,
            Fault::ApiVersion => 12 << 4 | 1,
            Fault::EncodeEngines => 2,
            _ => 0,
        }
    }
}

static SET: Mutex<Option<HashMap<Fault, i64>>> = Mutex::new(None);

fn lock() -> MutexGuard<'static, Option<HashMap<Fault, i64>>> {
    SET.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(crate) fn set(fault: Fault, value: i64) {
    lock().get_or_insert_default().insert(fault, value);
}

pub(crate) fn reset() {
    *lock() = None;
}

/// The value of a property.
pub(crate) fn get(fault: Fault) -> i64 {
    lock().get_or_insert_default().get(&fault).copied().unwrap_or(fault.default())
}

/// Whether to misbehave now; counts down.
pub(crate) fn happens(fault: Fault) -> bool {
    let mut set = lock();
    let value = set.get_or_insert_default().entry(fault).or_insert(fault.default());
    if *value > 0 {
        *value -= 1;
        return true;
    }
    *value < 0
}

/// Blocks while a hang is set.
pub(crate) fn hang(fault: Fault) {
    while get(fault) != 0 {
        std::thread::sleep(Duration::from_millis(2));
    }
}
