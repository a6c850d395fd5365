//! The kernels as the driver takes them: PTX, made by `make ptx` from `kernels/` and kept with the sources.

/// PTX of each stage, by the stem of its source.
pub(crate) const MODULES: &[(&str, &str)] = &[
    ("assemble", include_str!("../ptx/assemble.ptx")),
    ("basis", include_str!("../ptx/basis.ptx")),
    ("blob", include_str!("../ptx/blob.ptx")),
    ("chain", include_str!("../ptx/chain.ptx")),
    ("levels_count", include_str!("../ptx/levels_count.ptx")),
    ("levels_decode", include_str!("../ptx/levels_decode.ptx")),
    ("levels_fixed", include_str!("../ptx/levels_fixed.ptx")),
    ("levels_pack", include_str!("../ptx/levels_pack.ptx")),
    ("levels_pass", include_str!("../ptx/levels_pass.ptx")),
    ("levels_tables", include_str!("../ptx/levels_tables.ptx")),
    ("levels_trellis", include_str!("../ptx/levels_trellis.ptx")),
    ("levels_wide", include_str!("../ptx/levels_wide.ptx")),
    ("levels_write", include_str!("../ptx/levels_write.ptx")),
    ("lossless_count", include_str!("../ptx/lossless_count.ptx")),
    ("lossless_decode", include_str!("../ptx/lossless_decode.ptx")),
    ("lossless_encode", include_str!("../ptx/lossless_encode.ptx")),
    ("lossless_halves", include_str!("../ptx/lossless_halves.ptx")),
    ("lossless_write", include_str!("../ptx/lossless_write.ptx")),
    ("rate_classes", include_str!("../ptx/rate_classes.ptx")),
    ("rate_fit", include_str!("../ptx/rate_fit.ptx")),
    ("rate_scan", include_str!("../ptx/rate_scan.ptx")),
    ("rate_settle", include_str!("../ptx/rate_settle.ptx")),
    ("rate_share", include_str!("../ptx/rate_share.ptx")),
    ("rate_trial", include_str!("../ptx/rate_trial.ptx")),
];

/// The module that has a kernel: of those whose name the kernel's starts with, the one with the longest.
pub(crate) fn module_of(kernel: &str) -> Option<&'static str> {
    MODULES.iter().filter(|(stem, _)| kernel.starts_with(stem)).max_by_key(|m| m.0.len()).map(|m| m.1)
}

/// Names of the kernels in a module.
pub(crate) fn kernels(ptx: &'static str) -> impl Iterator<Item = &'static str> {
    ptx.lines().filter_map(|l| l.strip_prefix(".visible .entry ")).filter_map(|l| l.split('(').next())
}
