//! A bench for the built command: a temporary folder, small models, results.
#![allow(dead_code)] // each test file uses its share

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use tempfile::TempDir;

/// The command that is tested: tenfold, or in the tests of the lab tenfold-lab.
pub const PROGRAM: Option<&str> = match option_env!("CARGO_BIN_EXE_tenfold") {
    None => option_env!("CARGO_BIN_EXE_tenfold-lab"),
    found => found,
};

pub struct Bench {
    pub dir: TempDir,
}

impl Bench {
    /// A folder that holds a small model, `model.safetensors`.
    pub fn new() -> Self {
        let bench = Bench { dir: tempfile::tempdir().unwrap() };
        write_model(&bench.path("model.safetensors"), 2, 64, 96);
        bench
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// The command, run inside the folder.
    pub fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(PROGRAM.expect("cargo builds the command for these tests"));
        command.args(args).current_dir(self.dir.path()).stdin(Stdio::null());
        command
    }

    pub fn run(&self, args: &[&str]) -> Output {
        self.command(args).output().unwrap()
    }

    /// Runs, expects success, returns what was printed.
    pub fn ok(&self, args: &[&str]) -> String {
        let output = self.run(args);
        assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    /// Runs, expects an exit code, returns the error text.
    pub fn fails(&self, code: i32, args: &[&str]) -> String {
        let output = self.run(args);
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(code), "{args:?}: {text}");
        assert!(!text.is_empty() && !text.contains("panicked"), "{text}");
        text
    }

    pub fn json(&self, args: &[&str]) -> serde_json::Value {
        serde_json::from_str(&self.ok(args)).unwrap()
    }

    /// Names in the folder, sorted.
    pub fn list(&self) -> Vec<String> {
        let mut names: Vec<String> = std::fs::read_dir(self.dir.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
            .collect();
        names.sort();
        names
    }
}

/// Writes a model of f32 matrices `layers.N.weight` and a vector `norm.weight`.
pub fn write_model(path: &Path, layers: usize, rows: usize, cols: usize) {
    let mut header = String::from("{\"__metadata__\":{\"format\":\"pt\"}");
    let mut at = 0;
    let mut entry = |name: &str, shape: &str, bytes: usize| {
        let entry = format!(
            ",\"{name}\":{{\"dtype\":\"F32\",\"shape\":[{shape}],\"data_offsets\":[{at},{}]}}",
            at + bytes
        );
        at += bytes;
        header.push_str(&entry);
    };
    for layer in 0..layers {
        entry(&format!("layers.{layer}.weight"), &format!("{rows},{cols}"), rows * cols * 4);
    }
    entry("norm.weight", "8", 32);
    header.push('}');
    while header.len() % 8 != 0 {
        header.push(' ');
    }
    let mut state = 88172645463325252u64;
    let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
    bytes.extend_from_slice(header.as_bytes());
    for _ in 0..at / 4 {
        let mut sum = 0.0;
        for _ in 0..4 {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            sum += (state >> 40) as f32 / (1u64 << 24) as f32 - 0.5;
        }
        bytes.extend_from_slice(&(sum * 0.05).to_le_bytes());
    }
    std::fs::write(path, bytes).unwrap();
}
