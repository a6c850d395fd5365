//! Hidden states over a link: encode, send, receive, decode, all at once, beside the same bytes raw.
//!
//! ```text
//! hidden_states receive ADDRESS
//! hidden_states send ADDRESS FILE [--bits 2.5] [--mb 32] [--effort fast] [--raw] [--trace FILE]
//! ```
//! FILE is a safetensors file; its bf16 or f32 matrices, as bf16, repeated to `--mb` megabytes, are sent in chunks of 1 MB. The receiver answers with
//! a byte when everything is decoded, so the sender's time is end to end. Run both in network namespaces: `scripts/netns.sh`.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::Instant;

use half::bf16;
use tenfold::engine::Stop;
use tenfold::{DecodeOptions, Dtype, Effort, EncodeOptions, Goal, TensorView};
use tenfold_archive::Archive;
use tenfold_link::pipeline::{Timeline, run};

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Bytes of a chunk.
const CHUNK: usize = 1 << 20;

fn main() -> Result<(), Failure> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let option =
        |name: &str| args.iter().position(|arg| arg == name).and_then(|at| args.get(at + 1)).cloned();
    match args.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["receive", address, ..] => receive(address),
        ["send", address, file, ..] => {
            let bits: f64 = option("--bits").map_or(Ok(2.5), |text| text.parse())?;
            let mb: usize = option("--mb").map_or(Ok(32), |text| text.parse())?;
            let effort = match option("--effort").as_deref() {
                Some("best") => Effort::Best,
                Some("balanced") => Effort::Balanced,
                _ => Effort::Fast,
            };
            let is_raw = args.iter().any(|arg| arg == "--raw");
            send(address, file, Some((bits, effort)).filter(|_| !is_raw), mb, option("--trace"))
        }
        _ => Err("hidden_states receive ADDRESS | send ADDRESS FILE [--bits B] [--mb N] [--effort E] [--raw] [--trace FILE]".into()),
    }
}

/// Matrices of a file as bf16, cut into chunks of whole rows.
fn chunks(file: &str, mb: usize) -> Result<(Vec<Vec<u8>>, usize), Failure> {
    let archive = Archive::open(file.as_ref())?;
    let mut all = Vec::new();
    let mut cols = 0;
    for (index, tensor) in archive.tensors().iter().enumerate() {
        let Some(&width) = tensor.shape.last() else { continue };
        if tensor.shape.len() < 2 || (cols != 0 && width != cols) {
            continue;
        }
        let read = archive.read(index, &DecodeOptions::default())?;
        match read.dtype {
            Dtype::Bf16 => all.extend_from_slice(&read.data),
            Dtype::F32 => {
                all.extend(read.to_vec::<f32>()?.into_iter().flat_map(|v| bf16::from_f32(v).to_le_bytes()));
            }
            _ => continue,
        }
        cols = width;
    }
    if all.is_empty() {
        return Err(format!("{file} holds no matrix of bf16 or f32").into());
    }
    let want = mb * 1_000_000;
    let bytes: Vec<u8> = all.iter().copied().cycle().take(want / (2 * cols) * 2 * cols).collect();
    let chunk = (CHUNK / (2 * cols)).max(1) * 2 * cols;
    Ok((bytes.chunks(chunk).map(<[u8]>::to_vec).collect(), cols))
}

fn send(
    address: &str,
    file: &str,
    goal: Option<(f64, Effort)>,
    mb: usize,
    trace: Option<String>,
) -> Result<(), Failure> {
    let (chunks, cols) = chunks(file, mb)?;
    let raw: usize = chunks.iter().map(Vec::len).sum();
    let mut stream = TcpStream::connect(address)?;
    stream.set_nodelay(true)?;
    let mut done = stream.try_clone()?;
    let timeline = Timeline::new();
    let begin = Instant::now();
    let mut sent = 0u64;
    run(
        &timeline,
        &Stop::new(),
        || "stopped".into(),
        |stages: tenfold_link::pipeline::Stages<'_, '_, Failure>| {
            let read = stages.source("read", 8, |out| chunks.iter().try_for_each(|chunk| out.send(chunk)));
            let coded = stages.stage("encode", 2, read, move |chunk: &Vec<u8>| {
                let Some((bits, effort)) = goal else { return Ok((chunk.clone(), chunk.len() as u64)) };
                let shape = [chunk.len() / (2 * cols), cols];
                let view = TensorView::new(Dtype::Bf16, &shape, chunk)?;
                let options = EncodeOptions::new(Goal::Bits(bits)).with_effort(effort).with_threads(1);
                Ok((tenfold::encode(&view, &options)?, chunk.len() as u64))
            });
            let (sent, stream) = (&mut sent, &mut stream);
            stages.sink("send", coded, move |bytes: Vec<u8>| {
                let mut head = [0; 9];
                head[0] = u8::from(goal.is_some());
                head[1..].copy_from_slice(&(bytes.len() as u64).to_le_bytes());
                stream.write_all(&head)?;
                stream.write_all(&bytes)?;
                *sent += 9 + bytes.len() as u64;
                Ok(bytes.len() as u64)
            });
        },
    )?;
    stream.write_all(&[2; 9])?;
    done.read_exact(&mut [0])?;
    let seconds = begin.elapsed().as_secs_f64();
    println!(
        "{{\"raw_bytes\": {raw}, \"sent_bytes\": {sent}, \"size_ratio\": {:.3}, \"seconds\": {seconds:.3}, \"mb_per_s\": {:.1}}}",
        raw as f64 / sent as f64,
        raw as f64 / 1e6 / seconds
    );
    eprintln!("{}", timeline.summary());
    if let Some(path) = trace {
        timeline.write_trace(&mut std::fs::File::create(path)?)?;
    }
    Ok(())
}

fn receive(address: &str) -> Result<(), Failure> {
    let (mut stream, _) = TcpListener::bind(address)?.accept()?;
    let mut answer = stream.try_clone()?;
    let timeline = Timeline::new();
    let mut bytes = 0u64;
    run(
        &timeline,
        &Stop::new(),
        || "stopped".into(),
        |stages: tenfold_link::pipeline::Stages<'_, '_, Failure>| {
            let stream = &mut stream;
            let received = stages.source("receive", 8, move |out| {
                loop {
                    let begin = out.timeline().now();
                    let mut head = [0; 9];
                    stream.read_exact(&mut head)?;
                    if head[0] == 2 {
                        return Ok(());
                    }
                    let mut number = [0; 8];
                    number.copy_from_slice(&head[1..]);
                    let len = u64::from_le_bytes(number);
                    if len > 16 * CHUNK as u64 {
                        return Err(format!("a chunk of {len} bytes").into());
                    }
                    let mut body = vec![0; len as usize];
                    stream.read_exact(&mut body)?;
                    out.record(begin, len);
                    out.send((head[0] == 1, body))?;
                }
            });
            let decoded = stages.stage("decode", 2, received, |(is_blob, body): (bool, Vec<u8>)| {
                if !is_blob {
                    let len = body.len() as u64;
                    return Ok((body, len));
                }
                let tensor = tenfold::decode(&body, &DecodeOptions::default().with_threads(1))?;
                let len = tensor.data.len() as u64;
                Ok((tensor.data, len))
            });
            let bytes = &mut bytes;
            stages.sink("take", decoded, move |data: Vec<u8>| {
                *bytes += data.len() as u64;
                Ok(data.len() as u64)
            });
        },
    )?;
    answer.write_all(&[1])?;
    eprintln!("{bytes} bytes received\n{}", timeline.summary());
    Ok(())
}
