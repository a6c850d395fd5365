//! Energy of a bit that is sent: through the network alone, or through a codec and less of the network.

use serde::Serialize;

/// Energy of one bit of an uncompressed tensor, in pJ.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Bit {
    /// On the network.
    pub network: f64,
    /// In encoder and decoder.
    pub codec: f64,
}

impl Bit {
    /// Through a network of so many pJ a bit, `ratio` times smaller, after an encoder and before a decoder.
    pub fn coded(nccl: f64, ratio: f64, encode: f64, decode: f64) -> Bit {
        Bit { network: nccl / ratio, codec: encode + decode }
    }

    /// As it is.
    pub fn raw(nccl: f64) -> Bit {
        Bit { network: nccl, codec: 0.0 }
    }

    /// All of it.
    pub fn total(self) -> f64 {
        self.network + self.codec
    }
}

/// How many times less energy a bit takes.
pub fn energy_gain(raw: Bit, coded: Bit) -> f64 {
    raw.total() / coded.total()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn published_gains_come_out() {
        // The codec alone beside the network: what it would be if compressed bits cost nothing to send.
        let raw = Bit::raw(5120.0);
        let codec = Bit { network: 0.0, codec: 97.8 + 63.5 };
        assert_eq!(energy_gain(raw, codec), 5120.0 / 161.3);
        assert_eq!(format!("{:.1}", energy_gain(raw, codec)), "31.7");
        // At a ratio of 5.
        let coded = Bit::coded(5120.0, 5.0, 97.8, 63.5);
        assert_eq!(coded.total(), 1024.0 + (97.8 + 63.5));
        assert_eq!(format!("{:.2}", energy_gain(raw, coded)), "4.32");
    }
}
