//! Puts measurements in a random order, so that other load of the machine affects all of them alike.

/// A generator of random orders.
pub struct Shuffle(u64);

impl Shuffle {
    /// Seeds the generator with the time.
    pub fn new() -> Self {
        let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        Self(since.map_or(1, |since| since.as_secs() ^ u64::from(since.subsec_nanos()) << 32) | 1)
    }

    /// Shuffles items.
    pub fn order<T>(&mut self, items: &mut [T]) {
        for i in (1..items.len()).rev() {
            // The next number of a xorshift64 generator.
            self.0 ^= self.0 << 13;
            self.0 ^= self.0 >> 7;
            self.0 ^= self.0 << 17;
            items.swap(i, usize::try_from(self.0 % (i as u64 + 1)).unwrap_or(i));
        }
    }
}
