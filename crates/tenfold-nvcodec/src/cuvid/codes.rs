//! Return codes of `libnvcuvid`, which are those of CUDA's driver, and their names.

use super::abi::CuResult;
use crate::error::{Error, Result};

/// NVIDIA's name of a `CUresult`.
pub(crate) fn name(code: CuResult) -> &'static str {
    match code {
        0 => "CUDA_SUCCESS",
        1 => "CUDA_ERROR_INVALID_VALUE",
        2 => "CUDA_ERROR_OUT_OF_MEMORY",
        3 => "CUDA_ERROR_NOT_INITIALIZED",
        4 => "CUDA_ERROR_DEINITIALIZED",
        34 => "CUDA_ERROR_STUB_LIBRARY",
        46 => "CUDA_ERROR_DEVICE_UNAVAILABLE",
        100 => "CUDA_ERROR_NO_DEVICE",
        101 => "CUDA_ERROR_INVALID_DEVICE",
        200 => "CUDA_ERROR_INVALID_IMAGE",
        201 => "CUDA_ERROR_INVALID_CONTEXT",
        205 => "CUDA_ERROR_MAP_FAILED",
        206 => "CUDA_ERROR_UNMAP_FAILED",
        208 => "CUDA_ERROR_ALREADY_MAPPED",
        211 => "CUDA_ERROR_NOT_MAPPED",
        214 => "CUDA_ERROR_ECC_UNCORRECTABLE",
        215 => "CUDA_ERROR_UNSUPPORTED_LIMIT",
        226 => "CUDA_ERROR_EXTERNAL_DEVICE",
        400 => "CUDA_ERROR_INVALID_HANDLE",
        401 => "CUDA_ERROR_ILLEGAL_STATE",
        600 => "CUDA_ERROR_NOT_READY",
        700 => "CUDA_ERROR_ILLEGAL_ADDRESS",
        701 => "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES",
        702 => "CUDA_ERROR_LAUNCH_TIMEOUT",
        709 => "CUDA_ERROR_CONTEXT_IS_DESTROYED",
        710 => "CUDA_ERROR_ASSERT",
        714 => "CUDA_ERROR_HARDWARE_STACK_ERROR",
        715 => "CUDA_ERROR_ILLEGAL_INSTRUCTION",
        716 => "CUDA_ERROR_MISALIGNED_ADDRESS",
        717 => "CUDA_ERROR_INVALID_ADDRESS_SPACE",
        718 => "CUDA_ERROR_INVALID_PC",
        719 => "CUDA_ERROR_LAUNCH_FAILED",
        800 => "CUDA_ERROR_NOT_PERMITTED",
        801 => "CUDA_ERROR_NOT_SUPPORTED",
        802 => "CUDA_ERROR_SYSTEM_NOT_READY",
        803 => "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH",
        999 => "CUDA_ERROR_UNKNOWN",
        _ => "a CUresult without a name here",
    }
}

/// After these the device's memory is lost to the process.
const LOST: [CuResult; 14] = [4, 46, 214, 700, 702, 709, 710, 714, 715, 716, 717, 718, 719, 226];

/// Sorts an answer.
pub(crate) fn check(call: &'static str, code: CuResult) -> Result<()> {
    match code {
        0 => Ok(()),
        2 => Err(tenfold_cuda::Error::OutOfMemory { asked: 0 }.into()),
        lost if LOST.contains(&lost) => {
            Err(tenfold_cuda::Error::DeviceLost(format!("{call}: {} ({lost})", name(lost))).into())
        }
        other => Err(Error::Call { call, code: other.unsigned_abs(), name: name(other) }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tenfold::engine::ErrorKind;

    #[test]
    fn codes_have_names_and_say_who_must_act() {
        assert_eq!(check("cuvidCreateDecoder", 0), Ok(()));
        let kind = |code| check("cuvidCreateDecoder", code).map_err(|e| (e.kind(), e.to_string()));
        let (who, text) = kind(801).unwrap_err();
        assert_eq!(who, ErrorKind::Environment);
        assert!(
            text.contains("cuvidCreateDecoder") && text.contains("CUDA_ERROR_NOT_SUPPORTED (801)"),
            "{text}"
        );
        assert_eq!(kind(2).unwrap_err().0, ErrorKind::Limit);
        let lost = check("cuvidMapVideoFrame64", 719).unwrap_err();
        assert!(matches!(lost, Error::Cuda(tenfold_cuda::Error::DeviceLost(_))), "{lost}");
    }
}
