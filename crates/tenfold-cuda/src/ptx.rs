//! The kernels as the driver takes them: PTX, made by `make ptx` from `kernels/` and kept with the sources.

/// PTX of each stage, by the stem of its source.
pub(crate) const MODULES: &[(&str, &str)] = &[
    ("blob", include_str!("../ptx/blob.ptx")),
    ("levels", include_str!("../ptx/levels.ptx")),
    ("lossless", include_str!("../ptx/lossless.ptx")),
];

/// The module that has a kernel: its name starts with the stage's.
pub(crate) fn module_of(kernel: &str) -> Option<&'static str> {
    MODULES.iter().find(|(stem, _)| kernel.split('_').next() == Some(stem)).map(|m| m.1)
}

/// Names of the kernels in a module.
pub(crate) fn kernels(ptx: &'static str) -> impl Iterator<Item = &'static str> {
    ptx.lines().filter_map(|l| l.strip_prefix(".visible .entry ")).filter_map(|l| l.split('(').next())
}
