//! Lossy blobs.

use super::EncodeRequest;
use crate::device::{Device, DeviceSlice};
use crate::driver::Stream;
use crate::error::{Error, Result};

fn missing<T>() -> Result<T> {
    Err(Error::InvalidArgument("lossy encoding on a device is not built yet".into()))
}

/// Bytes of workspace.
pub(super) fn workspace_len(_device: &Device, _request: &EncodeRequest) -> Result<usize> {
    missing()
}

/// Queues the encoding of a tensor.
///
/// # Safety
/// As for [`super::encode`].
pub(super) unsafe fn encode(
    _device: &Device,
    _request: &EncodeRequest,
    _status: DeviceSlice,
    _workspace: DeviceSlice,
    _stream: Stream,
) -> Result<()> {
    missing()
}
