//! ZipNN, a compressor for the exponents of model weights, through its Python package.

use std::io::{Read, Write};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use tenfold::{Dtype, Tensor, TensorView};

use super::lossless;
use crate::peers::plain::corrupt;
use crate::peers::{Abilities, Peer, PeerError, header};

/// Reads standard input, writes standard output; the dtype is the second argument.
const SCRIPT: &str = "\
import sys, zipnn
coder = zipnn.ZipNN(input_format='byte', bytearray_dtype=sys.argv[2], threads=1)
data = bytearray(sys.stdin.buffer.read())
done = coder.compress(data) if sys.argv[1] == 'c' else coder.decompress(bytes(data))
sys.stdout.buffer.write(done)";

/// ZipNN with its defaults, on one thread.
#[derive(Debug, Clone, Copy)]
pub struct ZipNn;

impl Peer for ZipNn {
    fn name(&self) -> String {
        "zipnn".to_string()
    }

    fn abilities(&self) -> Abilities {
        // Most of the time is the start of Python and of the package's imports.
        lossless(false)
    }

    fn probe(&self) -> Result<(), PeerError> {
        static FOUND: OnceLock<bool> = OnceLock::new();
        let import = || {
            let mut python = Command::new("python3");
            python.args(["-c", "import zipnn"]).stdin(Stdio::null()).stdout(Stdio::null());
            python.stderr(Stdio::null()).status().is_ok_and(|s| s.success())
        };
        if *FOUND.get_or_init(import) {
            return Ok(());
        }
        let why = "python3 has no module zipnn (install it with `pip install zipnn`)";
        Err(PeerError::NotAvailable(why.to_string()))
    }

    fn encode(&self, view: &TensorView<'_>) -> Result<Vec<u8>, PeerError> {
        self.probe()?;
        let dtype =
            name(view.dtype()).ok_or_else(|| PeerError::Unsupported(format!("ZipNN on {}", view.dtype())))?;
        let mut out = header::start(view)?;
        out.extend(python("c", dtype, view.data()).map_err(PeerError::Failed)?);
        Ok(out)
    }

    fn decode(&self, bytes: &[u8]) -> Result<Tensor, PeerError> {
        let header::Header { dtype, shape, values, rest } = header::read(bytes)?;
        let name = name(dtype).ok_or_else(|| corrupt(format!("dtype {dtype}")))?;
        self.probe()?;
        let data = python("d", name, rest).map_err(PeerError::Corrupt)?;
        if data.len() != values * dtype.size() {
            return Err(corrupt(format!("{} bytes for the shape {shape:?}", data.len())));
        }
        Ok(Tensor { dtype, shape, data })
    }
}

/// The package's name of a dtype.
fn name(dtype: Dtype) -> Option<&'static str> {
    match dtype {
        Dtype::F32 => Some("float32"),
        Dtype::F16 => Some("float16"),
        Dtype::Bf16 => Some("bfloat16"),
        _ => None,
    }
}

/// Runs the script. Writing has its own thread: a full pipe in one direction must not stop the other.
fn python(direction: &str, dtype: &str, input: &[u8]) -> Result<Vec<u8>, String> {
    let mut child = Command::new("python3")
        .args(["-c", SCRIPT, direction, dtype])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .map_err(|e| e.to_string())?;
    let (stdin, stdout) = (child.stdin.take(), child.stdout.take());
    let mut out = Vec::new();
    let read = std::thread::scope(|scope| {
        scope.spawn(move || {
            // If Python stops early the pipe breaks; its exit status tells.
            if let Some(mut pipe) = stdin {
                let _ = pipe.write_all(input);
            }
        });
        stdout.map_or(Ok(0), |mut pipe| pipe.read_to_end(&mut out))
    });
    let status = child.wait().map_err(|e| e.to_string())?;
    read.map_err(|e| e.to_string())?;
    if status.success() { Ok(out) } else { Err(format!("zipnn ended with {status}")) }
}
