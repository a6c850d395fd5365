//! Packs the PTX of the kernels; with the feature `emulator`, compiles the kernels as C++ too.

use std::path::{Path, PathBuf};
use std::{env, fs, io};

fn main() -> io::Result<()> {
    println!("cargo::rerun-if-changed=build.rs");
    let out = PathBuf::from(env::var_os("OUT_DIR").unwrap_or_default());
    pack(&out)?;
    #[cfg(feature = "emulator")]
    emulator(&out)?;
    Ok(())
}

/// Files of a folder by their ending, in order.
fn files(folder: &str, ending: &str) -> io::Result<Vec<PathBuf>> {
    println!("cargo::rerun-if-changed={folder}");
    let mut files = fs::read_dir(folder)?.map(|e| Ok(e?.path())).collect::<io::Result<Vec<_>>>()?;
    files.retain(|path| path.extension().is_some_and(|e| e == ending));
    files.sort();
    Ok(files)
}

/// Packs each PTX file, a zero byte behind it, with zstd, and writes a table of them for `src/ptx.rs`.
fn pack(out: &Path) -> io::Result<()> {
    // The high level takes most of a minute, for half a megabyte less of each wheel: not for what tests build.
    let level = if env::var("PROFILE").is_ok_and(|profile| profile == "release") { 19 } else { 6 };
    let mut table = String::new();
    for file in files("ptx", "ptx")? {
        let mut text = fs::read_to_string(&file)?;
        let kernels: Vec<&str> = text
            .lines()
            .filter_map(|line| line.strip_prefix(".visible .entry ")?.split('(').next())
            .collect();
        table += &format!("Module {{ kernels: &{kernels:?}, len: {}, ", text.len() + 1);
        text.push('\0');
        let packed = out.join(file.file_stem().unwrap_or_default());
        fs::write(&packed, zstd::bulk::compress(text.as_bytes(), level)?)?;
        table += &format!("packed: include_bytes!({packed:?}) }},\n");
    }
    fs::write(out.join("modules.rs"), format!("&[\n{table}]"))
}

#[cfg(feature = "emulator")]
fn emulator(out: &Path) -> io::Result<()> {
    println!("cargo::rerun-if-changed=emulator");
    let (mut includes, mut names) = (String::new(), String::new());
    for file in files("kernels", "cu")? {
        includes += &format!("#include {:?}\n", fs::canonicalize(&file)?);
        let text = fs::read_to_string(file)?;
        // Kernels are written `KERNEL(threads) name(`.
        for line in text.lines().filter(|l| l.starts_with("KERNEL(")) {
            if let Some(name) = line.split(')').nth(1).and_then(|r| r.trim().split('(').next()) {
                names += &format!("KERNEL({name})\n");
            }
        }
    }
    fs::write(out.join("kernels.inc"), includes)?;
    fs::write(out.join("names.inc"), names)?;
    cc::Build::new()
        .cpp(true)
        .std("c++17")
        .opt_level(2)
        .include("emulator")
        .include("kernels")
        .include(out)
        .flag_if_supported("-ffp-contract=off")
        .flag_if_supported("-Wno-unused-parameter")
        .flag_if_supported("-Wno-unknown-pragmas")
        .file("emulator/kernels.cpp")
        .file("emulator/fibers.cpp")
        .compile("tenfold_emulator");
    Ok(())
}
