//! A server of this crate, a client of this crate, and something bad between them.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use common::{Bench, compressed, decoding, restored};
use tenfold_link::serve::{ServeOptions, Server};

/// A link that can be cut, and that may flip bits.
#[derive(Default)]
struct State {
    came: AtomicU64,
    /// Nothing gets through, in either direction, and no connection is made.
    is_cut: AtomicBool,
    /// Of the bytes from the server, one in so many has a wrong bit; 0 for none.
    flips: AtomicU64,
    flipped: AtomicU64,
}

fn proxy(to: SocketAddr) -> (SocketAddr, Arc<State>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (addr, state) = (listener.local_addr().unwrap(), Arc::new(State::default()));
    let shared = state.clone();
    std::thread::spawn(move || {
        for client in listener.incoming().flatten() {
            let Ok(server) = TcpStream::connect(to) else { continue };
            let ends = (client.try_clone().unwrap(), server.try_clone().unwrap());
            let (up, down) = (shared.clone(), shared.clone());
            std::thread::spawn(move || up.pass(ends.0, ends.1, false));
            std::thread::spawn(move || down.pass(server, client, true));
        }
    });
    (addr, state)
}

impl State {
    fn pass(&self, mut from: TcpStream, mut to: TcpStream, is_down: bool) {
        let mut piece = vec![0; 8 << 10];
        while let Ok(n @ 1..) = from.read(&mut piece) {
            while self.is_cut.load(Ordering::SeqCst) {
                std::thread::sleep(Duration::from_millis(20));
            }
            if is_down {
                let before = self.came.fetch_add(n as u64, Ordering::SeqCst);
                let every = self.flips.load(Ordering::SeqCst);
                if every > 0 && before / every != (before + n as u64) / every {
                    piece[n / 2] ^= 4;
                    self.flipped.fetch_add(1, Ordering::SeqCst);
                }
                std::thread::sleep(Duration::from_millis(1));
            }
            if to.write_all(&piece[..n]).is_err() {
                break;
            }
        }
        let _ = (to.shutdown(Shutdown::Both), from.shutdown(Shutdown::Both));
    }
}

#[test]
fn a_link_that_is_cut_for_ten_seconds_costs_ten_seconds() {
    let bench = Bench::new();
    let site = bench.path("site");
    std::fs::create_dir(&site).unwrap();
    let source = site.join("m.safetensors");
    let bytes = compressed(&source).len() as u64;
    let plain = restored(&source);
    let server = Server::start(&site, "127.0.0.1:0", ServeOptions::default()).unwrap();
    let (addr, link) = proxy(server.addr());
    let state = link.clone();
    let cutter = std::thread::spawn(move || {
        while state.came.load(Ordering::SeqCst) < bytes / 3 {
            std::thread::sleep(Duration::from_millis(1));
        }
        state.is_cut.store(true, Ordering::SeqCst);
        let begin = Instant::now();
        std::thread::sleep(Duration::from_secs(10));
        state.is_cut.store(false, Ordering::SeqCst);
        begin
    });
    // Less patience than the cut is long, for each request.
    let mut options = decoding();
    (options.stall, options.retries, options.connections) = (Duration::from_secs(2), 8, 2);
    bench.pull(&format!("http://{addr}/m.safetensors"), &options).unwrap();
    let since_cut = cutter.join().unwrap().elapsed();
    assert!(bench.out() == plain);
    assert!(since_cut < Duration::from_secs(25), "{since_cut:?}");
    let came = link.came.load(Ordering::SeqCst);
    // What was on its way when the link was cut may come twice: answers of both connections, that nobody waits for any more.
    assert!(came < 2 * bytes + 200_000, "{came} for {bytes}");
}

/// Flips go anywhere: into files, the manifest, lengths and names of headers. Whatever becomes of a run, a file that is in place is right.
#[test]
fn bits_flipped_on_the_way_never_end_in_a_file() {
    let bench = Bench::new();
    let site = bench.path("site");
    std::fs::create_dir(&site).unwrap();
    let source = site.join("m.safetensors");
    compressed(&source);
    let plain = restored(&source);
    std::fs::remove_file(source.with_extension("restored")).unwrap();
    let server = Server::start(&site, "127.0.0.1:0", ServeOptions::default()).unwrap();
    let (addr, link) = proxy(server.addr());
    let mut options = decoding();
    (options.stall, options.retries) = (Duration::from_secs(2), 3);
    let (mut whole, mut failed) = (0, 0);
    for every in [3_000_000, 700_000, 300_000, 90_000, 20_000] {
        link.flips.store(every, Ordering::SeqCst);
        match bench.pull(&format!("http://{addr}/m.safetensors"), &options) {
            Ok(_) => {
                whole += 1;
                assert!(bench.out() == plain, "one byte in {every}");
                std::fs::remove_file(bench.path("out")).unwrap();
            }
            Err(_) => {
                failed += 1;
                assert!(!bench.path("out").exists(), "one byte in {every}");
            }
        }
    }
    assert!(link.flipped.load(Ordering::SeqCst) > 10 && whole + failed == 5);
    link.flips.store(0, Ordering::SeqCst);
    bench.pull(&format!("http://{addr}/m.safetensors"), &options).unwrap();
    assert!(bench.out() == plain);
}
