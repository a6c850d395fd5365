//! With the feature `emulator`, compiles the kernels as C++.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    #[cfg(feature = "emulator")]
    emulator();
}

#[cfg(feature = "emulator")]
fn emulator() {
    use std::fs;
    use std::path::PathBuf;

    println!("cargo::rerun-if-changed=kernels");
    println!("cargo::rerun-if-changed=emulator");
    let out = PathBuf::from(std::env::var_os("OUT_DIR").unwrap_or_default());
    let mut files: Vec<PathBuf> = fs::read_dir("kernels")
        .into_iter()
        .flatten()
        .filter_map(|e| Some(e.ok()?.path()))
        .filter(|p| p.extension().is_some_and(|e| e == "cu"))
        .collect();
    files.sort();
    let (mut includes, mut names) = (String::new(), String::new());
    for file in &files {
        let path = fs::canonicalize(file).unwrap_or_else(|_| file.clone());
        includes += &format!("#include {:?}\n", path.display().to_string());
        let text = fs::read_to_string(file).unwrap_or_default();
        // Kernels are written `KERNEL(threads) name(`.
        for line in text.lines().filter(|l| l.starts_with("KERNEL(")) {
            if let Some(name) = line.split(')').nth(1).and_then(|r| r.trim().split('(').next()) {
                names += &format!("KERNEL({name})\n");
            }
        }
    }
    let write = |name: &str, text: String| {
        if let Err(e) = fs::write(out.join(name), text) {
            println!("cargo::error=cannot write {name}: {e}");
        }
    };
    write("kernels.inc", includes);
    write("names.inc", names);
    cc::Build::new()
        .cpp(true)
        .std("c++17")
        .opt_level(2)
        .include("emulator")
        .include("kernels")
        .include(&out)
        .flag_if_supported("-ffp-contract=off")
        .flag_if_supported("-Wno-unused-parameter")
        .flag_if_supported("-Wno-unknown-pragmas")
        .file("emulator/kernels.cpp")
        .file("emulator/fibers.cpp")
        .compile("tenfold_emulator");
}
