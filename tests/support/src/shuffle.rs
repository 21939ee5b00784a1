//! The order of measurements: what disturbs the machine is to disturb all of them.

/// An order that cannot be foreseen, and needs no library.
pub struct Shuffle(u64);

impl Shuffle {
    /// Begins with the time.
    pub fn new() -> Self {
        let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        Self(since.map_or(1, |since| since.as_secs() ^ u64::from(since.subsec_nanos()) << 32) | 1)
    }

    /// Puts items into such an order.
    pub fn order<T>(&mut self, items: &mut [T]) {
        for i in (1..items.len()).rev() {
            // xorshift64
            self.0 ^= self.0 << 13;
            self.0 ^= self.0 >> 7;
            self.0 ^= self.0 << 17;
            items.swap(i, usize::try_from(self.0 % (i as u64 + 1)).unwrap_or(i));
        }
    }
}
