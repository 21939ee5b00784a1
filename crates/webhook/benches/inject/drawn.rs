//! Generates hostile pods from seeds; the same seed gives the same pod.

use serde_json::Value;

use test_support::hostile::{self, Numbers};

/// A xorshift64 random number generator.
struct Random(u64);

impl Numbers for Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 >> 11
    }
}

/// Returns the hostile pod that this seed generates, and the names of the shapes (see [`hostile::SHAPES`]) that were
/// applied to it.
pub(crate) fn pod(seed: u64) -> (Value, Vec<&'static str>) {
    let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    // The first numbers of neighbouring seeds are similar and are skipped.
    for _ in 0..4 {
        let _ = random.next();
    }
    hostile::pod(&mut random)
}
