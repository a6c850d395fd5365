//! Reading, coding and writing at once changes no byte, and ends at the first error.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // helpers of tests are tests

mod common;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use common::*;
use tempfile::tempdir;
use tenfold::engine::{Capabilities, Cpu, Engine, ErrorKind, SharedEngine, Stop};
use tenfold::{DecodeOptions, Dtype, Effort, EncodeOptions, Error as CodecError, Goal, Tensor, TensorView};
use tenfold_archive::{
    CompressOptions, Error, Part, ReadOptions, Silent, Source, TensorInfo, compress, compress_part,
    compress_source, decompress, parts_folder,
};

/// Tensors of all sizes, some of which stay as they are.
fn model() -> Vec<Made> {
    let mut tensors = small_model();
    for i in 0..40 {
        tensors.push(halves(&format!("blocks.{i}.weight"), &[16 + 37 * i % 300, 256], 0.02));
    }
    tensors.push(halves("embedding.weight", &[20_000, 256], 0.02));
    tensors.push(floats("bias", &[5000], 0.1));
    tensors
}

/// An engine that counts its calls, and meddles.
struct Meddler {
    calls: AtomicUsize,
    at_once: AtomicUsize,
    most_at_once: AtomicUsize,
    takes_turns: bool,
    /// Called with the number of each call.
    meddle: Box<dyn Fn(usize) -> Result<(), CodecError> + Send + Sync>,
    /// Claims that blobs have at most this many bytes.
    claim: Option<usize>,
}

impl Meddler {
    fn new(meddle: impl Fn(usize) -> Result<(), CodecError> + Send + Sync + 'static) -> Meddler {
        let zero = AtomicUsize::default;
        Meddler {
            calls: zero(),
            at_once: zero(),
            most_at_once: zero(),
            takes_turns: false,
            meddle: Box::new(meddle),
            claim: None,
        }
    }

    fn call<T>(&self, work: impl FnOnce() -> Result<T, CodecError>) -> Result<T, CodecError> {
        self.most_at_once.fetch_max(self.at_once.fetch_add(1, SeqCst) + 1, SeqCst);
        let done = (self.meddle)(self.calls.fetch_add(1, SeqCst)).and_then(|()| work());
        self.at_once.fetch_sub(1, SeqCst);
        done
    }
}

#[derive(Clone)]
struct Shared(Arc<Meddler>);

impl Engine for Shared {
    fn name(&self) -> String {
        "meddler".into()
    }

    fn capabilities(&self) -> Capabilities {
        let mut can = Capabilities::native();
        can.takes_turns = self.0.takes_turns;
        can
    }

    fn encode(&self, view: &TensorView<'_>, options: &EncodeOptions) -> Result<Vec<u8>, CodecError> {
        self.0.call(|| Cpu.encode(view, options))
    }

    fn decode(&self, blob: &[u8], options: &DecodeOptions) -> Result<Tensor, CodecError> {
        self.0.call(|| Cpu.decode(blob, options))
    }

    fn decode_rows(
        &self,
        blob: &[u8],
        rows: Range<usize>,
        options: &DecodeOptions,
    ) -> Result<Tensor, CodecError> {
        Cpu.decode_rows(blob, rows, options)
    }

    fn max_encoded_len(
        &self,
        dtype: Dtype,
        shape: &[usize],
        options: &EncodeOptions,
    ) -> Result<usize, CodecError> {
        self.0.claim.map_or_else(|| Cpu.max_encoded_len(dtype, shape, options), Ok)
    }
}

fn shared(meddler: Meddler) -> (SharedEngine, Arc<Meddler>) {
    let meddler = Arc::new(meddler);
    (SharedEngine::new(Shared(meddler.clone())), meddler)
}

fn options() -> CompressOptions {
    CompressOptions::new(Goal::Bits(3.0)).with_effort(Effort::Fast).with_overwrite(true)
}

/// A failure of the engine that its error tells apart.
fn failure(what: &str) -> CodecError {
    CodecError::Engine { kind: ErrorKind::Environment, reason: what.into() }
}

#[test]
fn bytes_are_those_of_one_thing_after_the_other() {
    let dir = tempdir().unwrap();
    let [a, b, c] = ["a.safetensors", "b.safetensors", "c.safetensors"].map(|n| dir.path().join(n));
    write_standard(&a, &model(), &[("format", "pt")]);
    let read = |path: &Path| std::fs::read(path).unwrap();
    for goal in [Goal::Bits(3.0), Goal::Lossless] {
        let mut options = options();
        options.goal = Some(goal);
        // In a pool of the caller's there are no stages.
        let pool = rayon::ThreadPoolBuilder::new().num_threads(2).build().unwrap();
        let (plain, restored) = pool.install(|| {
            compress(&a, &b, &options, &Silent).unwrap();
            decompress(&b, &c, &DecodeOptions::default(), true, &Silent).unwrap();
            (read(&b), read(&c))
        });
        assert!(options.timeline.summary().stages.is_empty());
        for threads in [0, 1, 2, 7] {
            let report = compress(&a, &b, &options.clone().with_threads(threads), &Silent).unwrap();
            assert_eq!(report.compressed.tensors, 43);
            assert!(read(&b) == plain, "{threads} threads");
            let reading = DecodeOptions::default().with_threads(threads);
            decompress(&b, &c, &reading, true, &Silent).unwrap();
            assert!(read(&c) == restored, "{threads} threads");
        }
    }
}

#[test]
fn shards_are_begun_and_ended_in_turn() {
    let dir = tempdir().unwrap();
    let model = sharded(&dir);
    let (small, back) = (dir.path().join("small"), dir.path().join("back"));
    compress(&model, &small, &options(), &Silent).unwrap();
    compress(&small, &back, &options(), &Silent).unwrap_err();
    decompress(&small, &back, &DecodeOptions::default(), false, &Silent).unwrap();
    assert_eq!(list(&back), list(&model));
}

#[test]
fn the_timeline_has_every_stage() {
    let dir = tempdir().unwrap();
    let [a, b, c] = ["a.safetensors", "b.safetensors", "c.safetensors"].map(|n| dir.path().join(n));
    write_standard(&a, &model(), &[]);
    let options = options();
    let report = compress(&a, &b, &options, &Silent).unwrap();
    let reading = ReadOptions::default();
    decompress(&b, &c, reading.clone(), false, &Silent).unwrap();
    let original = report.total.original_bytes;
    for (timeline, middle) in [(&options.timeline, "encode"), (&reading.timeline, "decode")] {
        let summary = timeline.summary();
        let names: Vec<&str> = summary.stages.iter().map(|stage| stage.stage.as_str()).collect();
        assert_eq!(names, ["read", middle, "write"]);
        assert_eq!(summary.stage(middle).unwrap().bytes, original);
    }
    let written = options.timeline.summary().stage("write").unwrap().bytes;
    assert_eq!(written, report.total.stored_bytes);
}

#[test]
fn an_engine_that_takes_turns_is_asked_one_thing_at_a_time() {
    let dir = tempdir().unwrap();
    let [a, b, c] = ["a.safetensors", "b.safetensors", "c.safetensors"].map(|n| dir.path().join(n));
    write_standard(&a, &model(), &[]);
    let (engine, meddler) = shared(Meddler { takes_turns: true, ..Meddler::new(|_| Ok(())) });
    compress(&a, &b, &options().with_threads(4).with_engine(engine.clone()), &Silent).unwrap();
    let reading = ReadOptions::from(&DecodeOptions::default().with_threads(4)).with_engine(engine);
    decompress(&b, &c, reading, false, &Silent).unwrap();
    assert_eq!((meddler.calls.load(SeqCst), meddler.most_at_once.load(SeqCst)), (86, 1));
}

#[test]
fn an_error_of_the_engine_ends_everything_and_is_the_one_that_comes_back() {
    let dir = tempdir().unwrap();
    let [a, b, c] = ["a.safetensors", "b.safetensors", "c.safetensors"].map(|n| dir.path().join(n));
    write_standard(&a, &model(), &[]);
    let fail = || shared(Meddler::new(|n| if n == 20 { Err(failure("the twentieth")) } else { Ok(()) }));
    for threads in [1, 3] {
        let (engine, meddler) = fail();
        let error =
            compress(&a, &b, &options().with_threads(threads).with_engine(engine), &Silent).unwrap_err();
        assert!(error.to_string().contains("the twentieth"), "{error}");
        assert!(meddler.calls.load(SeqCst) < 43);
        assert_eq!(list(dir.path()), ["a.safetensors"]);
    }
    let (engine, _) = fail();
    let part = Part::new(1, 1).unwrap();
    let error = compress_part(&a, &b, part, &options().with_engine(engine), &Silent).unwrap_err();
    assert!(error.to_string().contains("the twentieth"), "{error}");
    assert!(list(&parts_folder(&b)).is_empty());
    std::fs::remove_dir(parts_folder(&b)).unwrap();

    compress(&a, &b, &options(), &Silent).unwrap();
    let reading = ReadOptions::default().with_engine(fail().0);
    let error = decompress(&b, &c, reading, false, &Silent).unwrap_err();
    assert!(error.to_string().contains("the twentieth"), "{error}");
    assert_eq!(list(dir.path()), ["a.safetensors", "b.safetensors"]);
}

#[test]
fn a_writer_that_fails_ends_everything() {
    let dir = tempdir().unwrap();
    let (a, b) = (dir.path().join("a.safetensors"), dir.path().join("b.safetensors"));
    write_standard(&a, &model(), &[]);
    // Blobs outgrow the room that was kept for them.
    let (engine, _) = shared(Meddler { claim: Some(20_000), ..Meddler::new(|_| Ok(())) });
    let error = compress(&a, &b, &options().with_engine(engine), &Silent).unwrap_err();
    assert!(error.to_string().contains("instead of 20000"), "{error}");
    assert_eq!(list(dir.path()), ["a.safetensors"]);
}

/// Tensors in memory, one of which cannot be read.
struct Broken {
    tensors: Vec<TensorInfo>,
    metadata: BTreeMap<String, String>,
    data: Vec<u8>,
    broken: usize,
}

impl Source for Broken {
    fn tensors(&self) -> &[TensorInfo] {
        &self.tensors
    }

    fn metadata(&self) -> &BTreeMap<String, String> {
        &self.metadata
    }

    fn read(&self, index: usize) -> tenfold_archive::Result<Cow<'_, [u8]>> {
        if index == self.broken {
            return Err(Error::InvalidArgument("this tensor cannot be read".into()));
        }
        Ok(Cow::Borrowed(&self.data))
    }
}

#[test]
fn a_source_that_cannot_be_read_ends_everything() {
    let dir = tempdir().unwrap();
    let b = dir.path().join("b.safetensors");
    let data = floats("x", &[64, 128], 0.1).data;
    let info = |i| TensorInfo {
        name: format!("{i}.weight"),
        dtype: Dtype::F32,
        shape: vec![64, 128],
        bytes: data.len() as u64,
    };
    for broken in [0, 57, 99] {
        let tensors = (0..100).map(info).collect();
        let source = Broken { tensors, metadata: BTreeMap::new(), data: data.clone(), broken };
        let error = compress_source(Box::new(source), &b, &options(), &Silent).unwrap_err();
        assert!(error.to_string().contains("this tensor cannot be read"), "{error}");
        assert!(list(dir.path()).is_empty());
    }
}

#[test]
fn a_stop_in_the_middle_ends_everything_soon() {
    let dir = tempdir().unwrap();
    let [a, b, c] = ["a.safetensors", "b.safetensors", "c.safetensors"].map(|n| dir.path().join(n));
    write_standard(&a, &model(), &[]);
    let stopping = |stop: &Stop, when: &Arc<Mutex<Option<Instant>>>| {
        let (stop, when) = (stop.clone(), when.clone());
        shared(Meddler::new(move |n| {
            if n == 20 {
                stop.stop();
                *when.lock().unwrap() = Some(Instant::now());
            }
            Ok(())
        }))
        .0
    };
    let stopped = |error: Error, when: &Mutex<Option<Instant>>| {
        let took = when.lock().unwrap().unwrap().elapsed();
        assert!(error.to_string().contains("stopped"), "{error}");
        assert_eq!(error.kind(), ErrorKind::Caller);
        assert!(took < Duration::from_secs(10), "{took:?}");
    };
    let (stop, when) = (Stop::new(), Arc::default());
    let options = options().with_engine(stopping(&stop, &when)).with_stop(stop);
    stopped(compress(&a, &b, &options, &Silent).unwrap_err(), &when);
    assert_eq!(list(dir.path()), ["a.safetensors"]);

    compress(&a, &b, &CompressOptions::new(Goal::Lossless), &Silent).unwrap();
    let (stop, when) = (Stop::new(), Arc::default());
    let reading = ReadOptions::from(&DecodeOptions::default().with_stop(stop.clone()))
        .with_engine(stopping(&stop, &when));
    stopped(decompress(&b, &c, reading, false, &Silent).unwrap_err(), &when);
    assert_eq!(list(dir.path()), ["a.safetensors", "b.safetensors"]);
}
