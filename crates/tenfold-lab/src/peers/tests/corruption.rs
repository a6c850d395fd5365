//! Damaged bytes: an error or other values of a sound tensor, never a panic, a hang or a wild allocation.

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tenfold::{Dtype, Tensor};

use super::super::{Peer, PeerError};
use super::everybody;
use crate::synth;

/// Decodes what may be anything. Larger tensors than the damage could explain count as wild.
fn survives(peer: &dyn Peer, bytes: &[u8]) -> Result<Tensor, PeerError> {
    let out = peer.decode(bytes);
    if let Ok(t) = &out {
        assert!(t.view().is_ok(), "{}: a tensor that is none", peer.name());
        assert!(t.data.len() < 1 << 26, "{}: {} bytes", peer.name(), t.data.len());
    }
    out
}

fn samples(peer: &dyn Peer) -> Vec<Vec<u8>> {
    let noise = synth::gaussian(Dtype::F32, &[9, 21], 0.02, 1).unwrap();
    let zeros = synth::tensor(Dtype::Bf16, &[600], &[0.0; 600]).unwrap();
    [noise, zeros].iter().map(|t| peer.encode(&t.view().unwrap()).unwrap()).collect()
}

#[test]
fn truncated_bytes_are_refused() {
    for (_, members) in everybody() {
        let peer = &*members[0];
        for bytes in samples(peer) {
            let step = bytes.len() / 150 + 1;
            for cut in (0..bytes.len()).step_by(step).chain([bytes.len() - 1]) {
                assert!(survives(peer, &bytes[..cut]).is_err(), "{} cut to {cut}", peer.name());
            }
        }
    }
}

#[test]
fn flipped_bits_never_panic() {
    let mut rng = StdRng::seed_from_u64(11);
    for (_, members) in everybody() {
        for peer in [members.first(), members.last()].into_iter().flatten() {
            for bytes in samples(&**peer) {
                // Every bit of what is surely header, then others at random.
                for bit in 0..(32 * 8).min(bytes.len() * 8) {
                    let mut bad = bytes.clone();
                    bad[bit / 8] ^= 1 << (bit % 8);
                    let _ = survives(&**peer, &bad);
                }
                for _ in 0..120 {
                    let mut bad = bytes.clone();
                    for _ in 0..rng.random_range(1..4) {
                        let at = rng.random_range(0..bad.len());
                        bad[at] = rng.random();
                    }
                    let _ = survives(&**peer, &bad);
                }
            }
        }
    }
}

#[test]
fn shapes_that_are_made_up_are_refused_before_memory_is_taken() {
    // The header of a peer: dtype, two dimensions, each of 2^31 values; then bytes of a sound blob.
    for (family, members) in everybody().into_iter().filter(|(f, _)| !f.title.starts_with("tenfold")) {
        let peer = &*members[0];
        for bytes in samples(peer) {
            let dims = usize::from(bytes[1]);
            let mut bad = vec![bytes[0], 2];
            bad.extend((1u32 << 31).to_le_bytes().repeat(2));
            bad.extend(&bytes[2 + 4 * dims..]);
            let e = survives(peer, &bad).unwrap_err();
            assert!(matches!(e, PeerError::Corrupt(_)), "{}: {e}", family.id);
        }
    }
}

#[test]
fn bytes_from_nowhere_never_panic() {
    let mut rng = StdRng::seed_from_u64(12);
    for (_, members) in everybody() {
        for len in 0..150 {
            let mut bytes: Vec<u8> = (0..len).map(|_| rng.random()).collect();
            // Half of them get through the header.
            if len > 6 && len % 2 == 0 {
                bytes[..6].copy_from_slice(&[Dtype::F32.id(), 1, 40, 0, 0, 0]);
            }
            let _ = survives(&*members[0], &bytes);
        }
    }
}
