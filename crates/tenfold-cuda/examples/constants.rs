//! Writes the headers that the kernels share with Rust, for `make ptx`.

fn main() -> std::io::Result<()> {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("kernels");
    tenfold_cuda::constants::headers()
        .iter()
        .try_for_each(|(name, text)| std::fs::write(folder.join(name), text))
}
