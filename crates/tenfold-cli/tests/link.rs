//! Two processes and a link between them: either is killed in mid-transfer, and nothing is lost.
#![allow(clippy::unwrap_used, clippy::expect_used)]
#![cfg(all(feature = "net", unix))]

mod common;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use common::{Bench, write_model};

/// A link in front of a server: counts what comes from it, and lets only so many bytes a second through.
struct Link {
    addr: SocketAddr,
    came: Arc<AtomicU64>,
    /// Bytes a second of each connection.
    rate: Arc<AtomicU64>,
}

impl Link {
    fn new(to: SocketAddr, bytes_per_second: u64) -> Link {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (addr, came) = (listener.local_addr().unwrap(), Arc::new(AtomicU64::new(0)));
        let rate = Arc::new(AtomicU64::new(bytes_per_second));
        let (counter, pace) = (came.clone(), rate.clone());
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let Ok(server) = TcpStream::connect(to) else { continue };
                let (mut up_from, mut up_to) = (client.try_clone().unwrap(), server.try_clone().unwrap());
                std::thread::spawn(move || {
                    let _ = std::io::copy(&mut up_from, &mut up_to);
                });
                let (mut down_from, mut down_to) = (server, client);
                let (counter, pace) = (counter.clone(), pace.clone());
                std::thread::spawn(move || {
                    let mut piece = vec![0; 8 << 10];
                    while let Ok(n @ 1..) = down_from.read(&mut piece) {
                        if down_to.write_all(&piece[..n]).is_err() {
                            break;
                        }
                        counter.fetch_add(n as u64, Ordering::SeqCst);
                        std::thread::sleep(Duration::from_secs_f64(
                            n as f64 / pace.load(Ordering::SeqCst) as f64,
                        ));
                    }
                    let _ = down_to.shutdown(std::net::Shutdown::Both);
                });
            }
        });
        Link { addr, came, rate }
    }

    fn wait_for(&self, bytes: u64) {
        let begin = Instant::now();
        while self.came.load(Ordering::SeqCst) < bytes {
            assert!(begin.elapsed() < Duration::from_secs(60), "nothing comes");
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

/// A server process, ended with the test.
struct Served(Child, SocketAddr);

impl Served {
    fn new(bench: &Bench, listen: &str) -> Served {
        let mut command = bench.command(&["serve", "site", "--listen", listen]);
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let addr = line.trim().rsplit_once("http://").unwrap().1.trim_end_matches('/').parse().unwrap();
        Served(child, addr)
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A site with a compressed model of about 5 MB.
fn site(bench: &Bench) -> u64 {
    std::fs::create_dir(bench.path("site")).unwrap();
    write_model(&bench.path("large.safetensors"), 8, 512, 1024);
    bench.ok(&[
        "compress",
        "large.safetensors",
        "-o",
        "site/m.safetensors",
        "--bits",
        "10",
        "--effort",
        "fast",
    ]);
    bench.ok(&["decompress", "site/m.safetensors", "-o", "plain.safetensors"]);
    bench.path("site/m.safetensors").metadata().unwrap().len()
}

fn pull(bench: &Bench, addr: SocketAddr) -> Command {
    let url = format!("http://{addr}/m.safetensors");
    bench.command(&["pull", &url, "-o", "out.safetensors", "--decode", "--connections", "2", "--stall", "5"])
}

fn is_right(bench: &Bench) -> bool {
    std::fs::read(bench.path("out.safetensors")).unwrap()
        == std::fs::read(bench.path("plain.safetensors")).unwrap()
}

#[test]
fn a_killed_client_goes_on_where_it_was() {
    let bench = Bench::new();
    let bytes = site(&bench);
    let server = Served::new(&bench, "127.0.0.1:0");
    for signal in ["KILL", "INT"] {
        let link = Link::new(server.1, 3_000_000);
        let mut client = pull(&bench, link.addr).stderr(Stdio::null()).spawn().unwrap();
        link.wait_for(bytes * 3 / 4);
        Command::new("kill").args(["-s", signal, &client.id().to_string()]).status().unwrap();
        let begin = Instant::now();
        let status = client.wait().unwrap();
        assert!(!status.success() && begin.elapsed() < Duration::from_secs(5), "{status}");
        assert!(!bench.path("out.safetensors").exists());
        let first = link.came.swap(0, Ordering::SeqCst);
        link.rate.store(100_000_000, Ordering::SeqCst);
        let output = pull(&bench, link.addr).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        assert!(is_right(&bench));
        let second = link.came.load(Ordering::SeqCst);
        // A kill may lose the last megabyte of each connection, and with Ctrl-C nothing that came is lost.
        let most = if signal == "INT" { 300_000 } else { (2 << 20) + 300_000 };
        assert!(first + second < bytes + most, "{signal}: {first} and {second} of {bytes}");
        std::fs::remove_file(bench.path("out.safetensors")).unwrap();
    }
    assert!(!bench.list().iter().any(|name| name.contains("tenfold-pull")), "{:?}", bench.list());
}

#[test]
fn a_killed_server_is_waited_for() {
    let bench = Bench::new();
    let bytes = site(&bench);
    let server = Served::new(&bench, "127.0.0.1:0");
    let addr = server.1;
    let link = Link::new(addr, 3_000_000);
    let client = pull(&bench, link.addr).stderr(Stdio::piped()).spawn().unwrap();
    link.wait_for(bytes / 3);
    drop(server);
    std::thread::sleep(Duration::from_secs(2));
    let _server = Served::new(&bench, &addr.to_string());
    let output = client.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(is_right(&bench));
}

#[test]
fn a_server_ends_when_it_is_asked_to_and_traces_are_written() {
    let bench = Bench::new();
    site(&bench);
    let mut server = Served::new(&bench, "127.0.0.1:0");
    let url = format!("http://{}/m.safetensors", server.1);
    let report =
        bench.json(&["pull", &url, "-o", "out.safetensors", "--decode", "--json", "--trace", "trace.json"]);
    assert!(is_right(&bench));
    assert_eq!(report["files"], 1);
    let trace: serde_json::Value =
        serde_json::from_slice(&std::fs::read(bench.path("trace.json")).unwrap()).unwrap();
    let stages: Vec<&str> =
        trace["traceEvents"].as_array().unwrap().iter().filter_map(|e| e["cat"].as_str()).collect();
    for stage in ["receive", "decode", "write"] {
        assert!(stages.contains(&stage), "{stage}");
    }
    let manifest = bench.json(&["serve", "site", "--manifest"]);
    assert_eq!(manifest["files"][0]["name"], "m.safetensors");
    assert!(bench.fails(2, &["pull", &url, "-o", "out.safetensors"]).contains("--force"));
    bench.fails(2, &["pull", "nonsense", "-o", "x"]);
    bench.fails(6, &["pull", &url.replace("/m.", "/none."), "-o", "x"]);
    Command::new("kill").args(["-s", "INT", &server.0.id().to_string()]).status().unwrap();
    assert!(server.0.wait().unwrap().success());
}
