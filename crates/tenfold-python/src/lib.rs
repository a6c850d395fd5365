//! The native half of the Python package `tenfold`: the codec, model files and the command, over numpy arrays and DLPack.
//!
//! What people import is in `python/tenfold`; this module is private to it. It trusts no argument all the same: every
//! pointer comes from numpy or a DLPack capsule, and every length is checked here.
#![deny(unsafe_code)]

mod archive;
mod attend;
mod bench;
mod calibrated;
mod codec;
mod command;
mod cuda;
mod cuda_delta;
mod cuda_pages;
mod cuda_video;
mod delta;
mod delta_files;
mod dlpack;
mod errors;
mod kv;
mod link;
mod plan;
mod slots;
mod stages;
mod tensors;
mod threads;
mod write;

use pyo3::prelude::*;

/// Native functions of tenfold; use the package `tenfold` instead.
#[pymodule(gil_used = true)]
mod _native {
    #[pymodule_export]
    use super::archive::{Archive, TensorInfo};
    #[pymodule_export]
    use super::bench::{time_decode, time_encode};
    #[pymodule_export]
    use super::calibrated::{Curvature, encode_calibrated};
    #[pymodule_export]
    use super::codec::{
        BlobInfo, Capabilities, EncodeOptions, capabilities, decode_into, encode, encode_into, inspect,
        max_encoded_len, verify,
    };
    #[pymodule_export]
    use super::command::main;
    #[pymodule_export]
    use super::cuda::{
        CudaDevice, DecodeRequests, cuda_can_convert, cuda_can_decode, cuda_decoded, cuda_lane_values,
    };
    #[pymodule_export]
    use super::cuda_delta::{DeltaPlan, DeviceDelta, cuda_apply_deltas, cuda_fingerprints};
    #[pymodule_export]
    use super::cuda_pages::{
        CudaBatch, CudaExact, CudaLadder, CudaLoad, CudaPages, CudaSave, cuda_pages_queue,
        cuda_pages_workspace,
    };
    #[pymodule_export]
    use super::cuda_video::{VideoLanes, VideoPending, VideoSessions, holds_pictures};
    #[pymodule_export]
    use super::delta::{DeltaInfo, delta_apply, delta_fingerprint, delta_inspect, delta_make};
    #[pymodule_export]
    use super::delta_files::{
        DeltaFile, delta_apply_file, delta_collect, delta_make_file, delta_make_state,
        delta_model_fingerprint,
    };
    #[pymodule_export]
    use super::kv::{Bases, Hidden, PageInfo, Pages, check_fit, fit_bases};
    #[pymodule_export]
    use super::link::{pull, pull_tensors};
    #[pymodule_export]
    use super::plan::{choose_way, fit_cost, parse_bandwidth};
    #[pymodule_export]
    use super::slots::next_slot_step;
    #[pymodule_export]
    use super::stages::{Stop, Timeline, run_stages};
    #[pymodule_export]
    use super::write::{Report, checksum, compress, decompress, model_tags, save};

    use super::*;

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        threads::remember_process();
        module.add("__version__", env!("CARGO_PKG_VERSION"))?;
        module.add("GOALS", tenfold::Goal::NAMES.map(|goal| goal.name).to_vec())?;
        module.add("FORMAT_VERSION", tenfold::format::VERSION)?;
        module.add("SLOT_TRIALS", slots::TRIALS)?;
        module.add("MODEL_FORMAT", tenfold_archive::MODEL_FORMAT)
    }
}
