//! A plain web server that can be told to misbehave, and small models.
#![allow(dead_code)] // each test file uses its share

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tempfile::TempDir;
use tenfold::{Dtype, EncodeOptions, Goal, TensorView};
use tenfold_archive::{Content, Silent, assemble};
use tenfold_link::pull::{PullOptions, Pulled, pull};

/// What an answer does wrong.
#[derive(Debug, Clone)]
pub enum Fault {
    None,
    /// The connection ends after so many bytes of the body.
    Cut(usize),
    /// Nothing comes for so long after so many bytes.
    Stall(usize, Duration),
    /// One bit of the file, at this byte, is wrong.
    Flip(usize),
    /// The server has never heard of ranges; its answer may end early.
    NoRanges(Option<usize>),
    /// It sends another range than it was asked for, and says so.
    OtherRange,
    /// It says that the file has so many bytes.
    Total(u64),
    /// Its Content-Length is off by so much.
    Length(i64),
    Status(u16),
    Redirect(String),
}

#[derive(Debug, Clone)]
pub struct Asked {
    pub path: String,
    pub range: Option<(usize, usize)>,
    pub headers: Vec<(String, String)>,
}

impl Asked {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str())
    }
}

type Behaviour = Box<dyn FnMut(&Asked) -> Fault + Send>;

/// A web server of files in memory.
pub struct Web {
    pub addr: SocketAddr,
    shared: Arc<Shared>,
}

struct Shared {
    files: Mutex<HashMap<String, Arc<Vec<u8>>>>,
    behaviour: Mutex<Behaviour>,
    asked: Mutex<Vec<Asked>>,
    sent: AtomicU64,
}

impl Web {
    pub fn new<N: Into<String>>(files: impl IntoIterator<Item = (N, Vec<u8>)>) -> Web {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let addr = listener.local_addr().unwrap();
        let files =
            files.into_iter().map(|(name, bytes)| (format!("/{}", name.into()), Arc::new(bytes))).collect();
        let shared = Arc::new(Shared {
            files: Mutex::new(files),
            behaviour: Mutex::new(Box::new(|_| Fault::None)),
            asked: Mutex::default(),
            sent: AtomicU64::new(0),
        });
        let state = shared.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let state = state.clone();
                std::thread::spawn(move || drop(state.talk(stream)));
            }
        });
        Web { addr, shared }
    }

    pub fn url(&self, name: &str) -> String {
        format!("http://{}/{name}", self.addr)
    }

    pub fn behave(&self, behaviour: impl FnMut(&Asked) -> Fault + Send + 'static) {
        *self.shared.behaviour.lock().unwrap() = Box::new(behaviour);
    }

    pub fn put(&self, name: &str, bytes: Vec<u8>) {
        self.shared.files.lock().unwrap().insert(format!("/{name}"), Arc::new(bytes));
    }

    /// The requests since the last call.
    pub fn asked(&self) -> Vec<Asked> {
        std::mem::take(&mut self.shared.asked.lock().unwrap())
    }

    /// Bytes of bodies sent since the last call.
    pub fn sent(&self) -> u64 {
        self.shared.sent.swap(0, Ordering::SeqCst)
    }
}

impl Shared {
    fn talk(&self, mut stream: TcpStream) -> std::io::Result<()> {
        let mut reader = BufReader::new(stream.try_clone()?);
        let mut line = String::new();
        reader.read_line(&mut line)?;
        // Some clients escape all but letters and digits of keys.
        let path = unescape(line.split(' ').nth(1).unwrap_or("/").split('?').next().unwrap_or("/"));
        let mut headers = Vec::new();
        loop {
            let mut line = String::new();
            if reader.read_line(&mut line)? == 0 || line.trim().is_empty() {
                break;
            }
            if let Some((key, value)) = line.split_once(':') {
                headers.push((key.trim().to_owned(), value.trim().to_owned()));
            }
        }
        let mut asked = Asked { path, range: None, headers };
        asked.range = asked.header("range").and_then(|text| {
            let (first, last) = text.strip_prefix("bytes=")?.split_once('-')?;
            Some((first.parse().ok()?, last.parse::<usize>().ok()? + 1))
        });
        let fault = (self.behaviour.lock().unwrap())(&asked);
        self.asked.lock().unwrap().push(asked.clone());
        let file = self.files.lock().unwrap().get(&asked.path).cloned();
        match (&fault, file) {
            (Fault::Status(status), _) => {
                write!(stream, "HTTP/1.1 {status} No\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
            }
            (Fault::Redirect(to), _) => {
                write!(
                    stream,
                    "HTTP/1.1 302 Found\r\nLocation: {to}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
                )
            }
            (_, None) => {
                write!(stream, "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
            }
            (_, Some(file))
                if asked.header("if-match").is_some_and(|tag| tag != format!("\"{}\"", hash(&file))) =>
            {
                write!(
                    stream,
                    "HTTP/1.1 412 Precondition Failed\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
                )
            }
            (_, Some(file)) => self.send(stream, &asked, &fault, &file),
        }
    }

    fn send(&self, mut stream: TcpStream, asked: &Asked, fault: &Fault, file: &[u8]) -> std::io::Result<()> {
        let mut range = asked.range.filter(|_| !matches!(fault, Fault::NoRanges(_)));
        if let (Fault::OtherRange, Some((start, end))) = (fault, &mut range) {
            (*start, *end) = (*start + 1, *end + 1);
        }
        if range.is_some() && file.is_empty() {
            return write!(
                stream,
                "HTTP/1.1 416 Range Not Satisfiable\r\nContent-Length: 0\r\nContent-Range: bytes */0\r\nConnection: close\r\n\r\n"
            );
        }
        let (start, end) = range.map_or((0, file.len()), |(a, b)| (a.min(file.len()), b.min(file.len())));
        let mut body = file[start..end].to_vec();
        if let Fault::Flip(at) = fault
            && (start..end).contains(at)
        {
            body[at - start] ^= 0x10;
        }
        let total = if let Fault::Total(total) = fault { *total } else { file.len() as u64 };
        let length = body.len() as i64 + if let Fault::Length(off) = fault { *off } else { 0 };
        let status = if range.is_some() { "206 Partial Content" } else { "200 OK" };
        let mut head =
            format!("HTTP/1.1 {status}\r\nContent-Length: {length}\r\nETag: \"{}\"\r\n", hash(file));
        head += "Last-Modified: Wed, 18 Nov 2026 12:00:00 GMT\r\n";
        if range.is_some() {
            head += &format!("Content-Range: bytes {start}-{}/{total}\r\n", end.saturating_sub(1));
        }
        stream.write_all(format!("{head}Connection: close\r\n\r\n").as_bytes())?;
        let cut = match fault {
            Fault::Cut(n) | Fault::Stall(n, _) | Fault::NoRanges(Some(n)) => (*n).min(body.len()),
            _ => body.len(),
        };
        for chunk in body[..cut].chunks(16 << 10) {
            stream.write_all(chunk)?;
            self.sent.fetch_add(chunk.len() as u64, Ordering::SeqCst);
        }
        if let Fault::Stall(_, time) = fault {
            std::thread::sleep(*time);
        }
        stream.flush()
    }
}

fn unescape(path: &str) -> String {
    let mut parts = path.split('%');
    let mut out = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        out.push(char::from(u8::from_str_radix(&part[..2], 16).unwrap()));
        out.push_str(&part[2..]);
    }
    out
}

fn hash(bytes: &[u8]) -> String {
    // Enough to tell versions apart, and no digest that the client would believe.
    format!(
        "{}-{}",
        bytes.len(),
        bytes.iter().fold(7u64, |h, &b| h.wrapping_mul(31).wrapping_add(u64::from(b)))
    )
}

/// Numbers that look like weights.
pub fn values(n: usize, seed: u64) -> Vec<f32> {
    let mut state = seed | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 40) as f32 / (1u64 << 24) as f32 - 0.5
    };
    (0..n).map(|_| (next() + next() + next()) * 0.05).collect()
}

/// A compressed model with blobs of one and of several tiles, lossy, lossless and transformed, and with plain tensors.
pub fn compressed(path: &Path) -> Vec<u8> {
    let blob = |rows: usize, cols: usize, seed: u64, options: EncodeOptions| {
        let values = values(rows * cols, seed);
        Content::Blob(
            tenfold::encode(&TensorView::from_slice(&values, &[rows, cols]).unwrap(), &options).unwrap(),
        )
    };
    let plain = |n: usize| {
        Content::Plain(Dtype::F32, vec![n], values(n, 9).iter().flat_map(|v| v.to_le_bytes()).collect())
    };
    let lossy = |bits: f64| EncodeOptions::new(Goal::Bits(bits)).with_effort(tenfold::Effort::Fast);
    let tensors = [
        ("embed.weight".to_owned(), blob(3000, 256, 1, lossy(3.0))),
        ("norm.weight".to_owned(), plain(256)),
        ("layers.0.weight".to_owned(), blob(256, 256, 2, lossy(2.0))),
        ("layers.1.weight".to_owned(), blob(700, 256, 3, EncodeOptions::new(Goal::Lossless))),
        ("layers.2.weight".to_owned(), blob(64, 256, 4, lossy(3.0).with_residual(Goal::Bits(3.0)))),
        ("big.bias".to_owned(), plain(60_000)),
    ];
    assemble(path, vec![("format".into(), "pt".into())], &tensors, true).unwrap();
    std::fs::read(path).unwrap()
}

/// The same, as `decompress` restores it.
pub fn restored(path: &Path) -> Vec<u8> {
    let out = path.with_extension("restored");
    tenfold_archive::decompress(path, &out, &tenfold::DecodeOptions::default(), true, &Silent).unwrap();
    std::fs::read(out).unwrap()
}

/// A folder for a test.
pub struct Bench {
    pub dir: TempDir,
}

impl Bench {
    pub fn new() -> Bench {
        Bench { dir: tempfile::tempdir().unwrap() }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Names in the folder, sorted.
    pub fn list(&self) -> Vec<String> {
        let entries = std::fs::read_dir(self.dir.path()).unwrap();
        let mut names: Vec<String> =
            entries.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }

    pub fn pull(&self, url: &str, options: &PullOptions) -> tenfold_link::Result<Pulled> {
        pull(url, &self.path("out"), options, &Silent)
    }

    /// Drops what a pull left behind.
    pub fn forget(&self) {
        let _ = std::fs::remove_dir_all(self.path(".out.tenfold-pull"));
        let _ = std::fs::remove_dir_all(self.path("cache"));
    }

    pub fn out(&self) -> Vec<u8> {
        std::fs::read(self.path("out")).unwrap()
    }
}

/// Options for tests: little patience.
pub fn quick() -> PullOptions {
    let mut options = PullOptions::default();
    (options.retries, options.stall) = (3, Duration::from_secs(5));
    options
}

pub fn decoding() -> PullOptions {
    let mut options = quick();
    options.decode = true;
    options
}
